# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The base of every op builder here, in the shape DeepSpeed's engine and report call it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class OpBuilder(ABC):
    """Gives DeepSpeed one op: an object with upstream's function names for it.

    `NAME` is upstream's name of the op (`cpu_adam`), `BUILD_VAR` its build switch. Asking whether an op
    is compatible starts no process, compiles nothing and never raises; the text is in `reason`.
    """

    NAME: ClassVar[str]
    BUILD_VAR: ClassVar[str] = ""

    def __init__(self, name: str | None = None) -> None:
        self.name = self.NAME if name is None else name
        self.error_log: str | None = None

    @property
    def reason(self) -> str:
        """Why the op is, or is not, to be had here; after `load`, where it came from. One sentence."""
        return self._verdict()[1]

    def is_compatible(self, verbose: bool = False) -> bool:
        """Whether `load` will give the op on this machine."""
        return self._verdict()[0]

    def _verdict(self) -> tuple[bool, str]:
        try:
            return self.compatibility()
        except Exception as error:
            # One op's probe must never take `import deepspeed` down with it.
            return False, f"the probe of {self.name} failed with {type(error).__name__}: {error}"

    @abstractmethod
    def compatibility(self) -> tuple[bool, str]:
        """Whether the op can be loaded, and the sentence why; cheap, without processes."""

    @abstractmethod
    def load(self, verbose: bool = True) -> Any:
        """The op's functions; raises AccelError with the cause when it cannot be had."""

    def absolute_name(self) -> str:
        """Dotted name under which DeepSpeed prints the op."""
        return f"{type(self).__module__}.{self.name}"

    def sources(self) -> list[str]:
        """Native source files, none for an op that is not compiled."""
        return []
