# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builder of an op that a device does not have."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from accel_core.errors import OpNotImplemented
from accel_core.op_builder.base import OpBuilder


class NotImplementedBuilder(OpBuilder):
    """A builder that is never compatible; `load` raises the reason, with the ops that the device has.

    `NAME` is the key with which DeepSpeed 0.18 looks up such builders.
    """

    NAME = "deepspeed_not_implemented"
    BUILD_VAR = "DS_BUILD_NOT_IMPLEMENTED"

    op: ClassVar[str] = "this op"
    device: ClassVar[str] = "this accelerator"
    why: ClassVar[str] = "nobody has written it for this device"
    available: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @cache
    def of(cls, op: str, device: str, why: str, available: tuple[str, ...]) -> type[NotImplementedBuilder]:
        """Return the class for one op of one device: the same for the same arguments."""
        if op == cls.__name__:
            return cls  # DeepSpeed looks up this name, for `isinstance(builder, …)`
        facts = {"op": op, "device": device, "why": why, "available": available}
        return type(cls.__name__, (cls,), {**facts, "__module__": cls.__module__})

    def compatibility(self) -> tuple[bool, str]:
        """Return False, and the reason."""
        return False, f"{self.op} on {self.device}: {self.why}"

    def load(self, verbose: bool = True) -> Any:
        """Raise OpNotImplemented."""
        raise OpNotImplemented(
            what=f"{self.op} cannot be loaded on {self.device}",
            found=self.why,
            expected=f"one of the ops there are: {', '.join(self.available) or 'none'}",
            do=f"turn the feature that needs {self.op} off in the DeepSpeed config, or use another accelerator",
        )
