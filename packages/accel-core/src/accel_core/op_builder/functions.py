# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""An op that is many functions: what a builder's `load` gives, and its answer for what is missing."""

from __future__ import annotations

from typing import Any, ClassVar

from accel_core.errors import FunctionNotImplemented

_TYPES = ("fp32", "fp16", "bf16")


class OpFunctions:
    """Methods under upstream's names.

    OP:    upstream's name of the op.
    TYPED: functions that upstream has once a float type, as `mlp_gemm_fp16`; here one serves all types.
    Any other name is an AttributeError, for which DeepSpeed has paths of its own in torch.
    """

    OP: ClassVar[str]
    TYPED: ClassVar[frozenset[str]] = frozenset()

    def __getattr__(self, name: str) -> Any:
        base, _, kind = name.rpartition("_")
        if kind in _TYPES and base in self.TYPED:
            return getattr(self, base)
        raise FunctionNotImplemented(
            what=f"{self.OP} has no function {name}",
            found="a call of it on an accelerator that serves this op in part",
            expected=f"one of {', '.join(self._names())}",
            do="turn the feature that needs it off, or let DeepSpeed use its own torch code for it",
        )

    def _names(self) -> list[str]:
        return sorted(name for name in dir(type(self)) if name[0] != "_" and not name.isupper())
