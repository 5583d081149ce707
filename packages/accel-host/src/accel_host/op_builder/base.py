# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the host's builders share: they always serve, by the library or in plain torch."""

from __future__ import annotations

from accel_core.op_builder import OpBuilder
from accel_host import library


class HostBuilder(OpBuilder):
    """Always compatible; the reason says from where the op comes."""

    def compatibility(self) -> tuple[bool, str]:
        """Always, and how."""
        return True, library.expected()
