# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of a device's fused optimizers: a fused op of its runtime, or plain torch if the runtime lacks it.

A vendor without such an op lists these classes in its op table unchanged. With one, derive::

    class FusedAdamBuilder(fused.FusedAdamBuilder):
        FUSED_OP = "npu.npu_apply_adam_w"
        fused = staticmethod(as_multi_tensor_adam(step))  # accel_core.op_builder.steps.adam: step(lists, AdamStep)
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from accel_core.op_builder.base import OpBuilder
from accel_core.op_builder.routes import Route
from accel_core.op_builder.steps.adam import multi_tensor_adam
from accel_core.op_builder.steps.lamb import lamb
from accel_core.op_builder.steps.lion import multi_tensor_lion


def has_op(name: str) -> bool:
    """Return whether the runtime has registered an op under `torch.ops`, such as `npu.npu_rms_norm`."""
    namespace, _, op = name.partition(".")
    return hasattr(getattr(torch.ops, namespace), op)


class FusedBuilder(OpBuilder):
    """Builder of an op with one function; nothing is compiled.

    FUNCTION: upstream's name of the function.
    FUSED_OP: name under `torch.ops` of the op that `fused` calls; empty if the vendor has none.
    plain:    the function in plain torch.
    fused:    the function with the fused op.
    """

    FUNCTION: ClassVar[str]
    FUSED_OP: ClassVar[str] = ""
    plain: Callable[..., Any]
    fused: Callable[..., Any]

    @classmethod
    def routes(cls) -> tuple[Route, ...]:
        """Return the fused op, if the vendor has one, and plain torch."""
        return (Route.VENDOR_OP, Route.PLAIN) if cls.FUSED_OP else (Route.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch is used if the fused op is missing."""
        if self._has_fused_op():
            return True, f"torch.ops.{self.FUSED_OP}"
        return True, f"plain torch: {self._lack()}"

    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's function."""
        return SimpleNamespace(**{self.FUNCTION: self.fused if self._has_fused_op() else self.plain})

    def _lack(self) -> str:
        if self.FUSED_OP:
            return f"this runtime has no torch.ops.{self.FUSED_OP}"
        return "the runtime has no fused op for it"

    def _has_fused_op(self) -> bool:
        return bool(self.FUSED_OP) and has_op(self.FUSED_OP)


class FusedAdamBuilder(FusedBuilder):
    """`multi_tensor_adam` for deepspeed.ops.adam.FusedAdam."""

    NAME = "fused_adam"
    BUILD_VAR = "DS_BUILD_FUSED_ADAM"
    FUNCTION = "multi_tensor_adam"
    plain = staticmethod(multi_tensor_adam)


class FusedLambBuilder(FusedBuilder):
    """`lamb` for deepspeed.ops.lamb.FusedLamb."""

    NAME = "fused_lamb"
    BUILD_VAR = "DS_BUILD_FUSED_LAMB"
    FUNCTION = "lamb"
    plain = staticmethod(lamb)


class FusedLionBuilder(FusedBuilder):
    """`multi_tensor_lion` for deepspeed.ops.lion.FusedLion."""

    NAME = "fused_lion"
    BUILD_VAR = "DS_BUILD_FUSED_LION"
    FUNCTION = "multi_tensor_lion"
    plain = staticmethod(multi_tensor_lion)
