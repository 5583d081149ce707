# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Base class of op builders, with the methods that DeepSpeed's engine and report call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from accel_core.op_builder.routes import Route


class OpBuilder(ABC):
    """Builder of one op: `load` returns an object with upstream's functions.

    `NAME` is upstream's name of the op (`cpu_adam`), `BUILD_VAR` its build switch. `ROUTES` is what `load` tries, in
    order; a class with a `load` of its own states it. `is_compatible` starts no process, compiles nothing and does not
    raise; `reason` explains its result.
    """

    NAME: ClassVar[str]
    BUILD_VAR: ClassVar[str] = ""
    ROUTES: ClassVar[tuple[Route, ...]] = ()

    def __init__(self, name: str | None = None) -> None:
        self.name = self.NAME if name is None else name
        self.error_log: str | None = None

    @property
    def reason(self) -> str:
        """Why the op can or cannot be loaded; after `load`, where it was loaded from. One sentence."""
        return self._verdict()[1]

    @classmethod
    def routes(cls) -> tuple[Route, ...]:
        """Return what `load` tries to compute the op with, in order, where the device and its runtime have it."""
        return cls.ROUTES

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether `load` will succeed on this machine."""
        return self._verdict()[0]

    def _verdict(self) -> tuple[bool, str]:
        try:
            return self.compatibility()
        except Exception as error:
            # An exception here would make `import deepspeed` fail.
            return False, f"the probe of {self.name} failed with {type(error).__name__}: {error}"

    @abstractmethod
    def compatibility(self) -> tuple[bool, str]:
        """Return whether the op can be loaded, and the reason. Must be cheap and start no process."""

    @abstractmethod
    def load(self, verbose: bool = True) -> Any:
        """Return an object with the op's functions; raises AccelError with the cause if it cannot be loaded."""

    def prepare(self) -> None:
        """Do what `load` leaves to the op's first use; `accel ops build` calls it. Most builders leave nothing."""

    def absolute_name(self) -> str:
        """Return the dotted name under which DeepSpeed prints the op."""
        return f"{type(self).__module__}.{self.name}"

    def sources(self) -> list[str]:
        """Return the native source files; empty if the op is not compiled."""
        return []
