# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the host's builders share: they always serve, by the library or in plain torch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from accel_core.op_builder import OpBuilder
from accel_host import library


class HostBuilder(OpBuilder):
    """Always compatible; the reason says where the op comes from, after `load` where it came from."""

    def compatibility(self) -> tuple[bool, str]:
        """Always, and from where."""
        return True, library.origin()

    def load(self, verbose: bool = True) -> Any:
        """Upstream's functions, with the library at hand or in plain torch. Never raises."""
        library.load()
        return self.functions()

    @abstractmethod
    def functions(self) -> Any:
        """An object with upstream's functions."""
