# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The base class of the host builders."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from accel_core.op_builder import Implementation, OpBuilder
from accel_ops import library


class HostBuilder(OpBuilder):
    """A builder whose op always works, with the library or in plain torch; `reason` says which of them."""

    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (
        Implementation.HOST,
        Implementation.COMPILED,
        Implementation.PLAIN,
    )

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and where the library comes from."""
        return True, library.origin()

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions, on the library or in plain torch. Never raises."""
        library.load()
        return self.functions()

    @abstractmethod
    def functions(self) -> Any:
        """Return an object with upstream's functions."""
