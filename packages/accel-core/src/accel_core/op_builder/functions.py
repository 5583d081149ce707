# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Base class of ops with many functions: the object that `load` returns, and its error for missing ones."""

from __future__ import annotations

from typing import Any, ClassVar

from accel_core.errors import FunctionNotImplemented

_TYPES = ("fp32", "fp16", "bf16")


class OpFunctions:
    """An op whose methods have upstream's names.

    OP:    upstream's name of the op.
    TYPED: functions that upstream has once per float type, such as `mlp_gemm_fp16`; here one method is for all.
    Other names raise AttributeError, for which DeepSpeed falls back to its own torch code.
    """

    OP: ClassVar[str]
    TYPED: ClassVar[frozenset[str]] = frozenset()

    def __getattr__(self, name: str) -> Any:
        base, _, dtype = name.rpartition("_")
        if dtype in _TYPES and base in self.TYPED:
            return getattr(self, base)
        raise FunctionNotImplemented(
            what=f"{self.OP} has no function {name}",
            found="a call on an accelerator that implements only part of this op",
            expected=f"one of {', '.join(self._names())}",
            do="disable the feature that needs it, or let DeepSpeed use its own torch code for it",
        )

    def _names(self) -> list[str]:
        return sorted(name for name in dir(type(self)) if name[0] != "_" and not name.isupper())
