# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The one error that a user of the example can correct."""

from __future__ import annotations


class BadInput(Exception):
    """Input that the run cannot start with."""

    def __init__(self, what: str, *, found: str, expected: str, do: str) -> None:
        self.what, self.found, self.expected, self.do = what, found, expected, do
        found = found.strip().replace("\n", "\n            ")
        super().__init__(f"{what}\n  found:    {found}\n  expected: {expected}\n  do:       {do}")


def has_advice(error: Exception) -> bool:
    """True if the text alone says what to do, so that a traceback would only hide it."""
    return hasattr(error, "do")
