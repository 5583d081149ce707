# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The answer for an op that a device does not have."""

from __future__ import annotations

from typing import Any, ClassVar

from accel_core.errors import OpNotImplemented
from accel_core.op_builder.base import OpBuilder


class NotImplementedBuilder(OpBuilder):
    """Never compatible; `load` says which op of which device, why, and which ops there are.

    `NAME` is the key under which DeepSpeed 0.18 looks such builders up.
    """

    NAME = "deepspeed_not_implemented"
    BUILD_VAR = "DS_BUILD_NOT_IMPLEMENTED"

    op: ClassVar[str] = "this op"
    device: ClassVar[str] = "this accelerator"
    why: ClassVar[str] = "nobody has written it for this device"
    available: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, op: str, device: str, why: str, available: tuple[str, ...]) -> type[NotImplementedBuilder]:
        """The class that answers for one op of one device."""
        if op == cls.__name__:
            return cls  # DeepSpeed looks this very name up, for `isinstance(builder, …)`.
        facts = {"op": op, "device": device, "why": why, "available": available}
        return type(cls.__name__, (cls,), {**facts, "__module__": cls.__module__})

    def compatibility(self) -> tuple[bool, str]:
        """Never, and why."""
        return False, f"{self.op} on {self.device}: {self.why}"

    def load(self, verbose: bool = True) -> Any:
        """Raises OpNotImplemented."""
        raise OpNotImplemented(
            what=f"{self.op} cannot be loaded on {self.device}",
            found=self.why,
            expected=f"one of the ops there are: {', '.join(self.available) or 'none'}",
            do=f"turn the feature that needs {self.op} off in the DeepSpeed config, or use another accelerator",
        )
