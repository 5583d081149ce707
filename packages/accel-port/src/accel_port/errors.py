# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The errors of accel-port, in four parts: what failed, what was found, what was expected, what to do."""

from __future__ import annotations


class PortError(Exception):
    """The port cannot be made, or not written."""

    def __init__(self, what: str, found: str, expected: str, do: str) -> None:
        super().__init__(f"{what}\n  found: {found}\n  expected: {expected}\n  do: {do}")
        self.what, self.found, self.expected, self.do = what, found, expected, do
