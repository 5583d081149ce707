# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of DeepSpeed's inference ops: plain torch, and fused ops of the vendor's runtime.

A vendor without such ops lists these classes in its op table unchanged. With some, derive::

    class InferenceBuilder(inference.InferenceBuilder):
        FUSED: ClassVar[FusedFunctions] = {"rms_norm": ("npu.npu_rms_norm", rms_norm)}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from accel_core.op_builder.base import OpBuilder
from accel_core.op_builder.functions import OpFunctions
from accel_core.op_builder.fused import has_op
from accel_core.op_builder.inference.core_ops import CoreFunctions
from accel_core.op_builder.inference.transformer import TransformerFunctions
from accel_core.op_builder.routes import Route

#: {function name: (op under `torch.ops`, replacement of the function if the runtime has the op)}.
FusedFunctions = Mapping[str, tuple[str, Callable[..., Any]]]


class FunctionsBuilder(OpBuilder):
    """Builder of an op with many functions; nothing is compiled.

    functions: class of the loaded object. FUSED: functions that have an op in the vendor's runtime.
    """

    functions: ClassVar[type[OpFunctions]]
    FUSED: ClassVar[FusedFunctions] = {}

    @classmethod
    def routes(cls) -> tuple[Route, ...]:
        """Return the runtime's ops, if it has some of the functions, and plain torch."""
        return (Route.VENDOR_OP, Route.PLAIN) if cls.FUSED else (Route.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True: plain torch is used if an op is missing."""
        found = sorted({op for op, _ in self.FUSED.values() if has_op(op)})
        ops = ", ".join(f"torch.ops.{op}" for op in found)
        return True, f"{ops}; the rest in plain torch" if found else "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """Return a new object with upstream's functions."""
        loaded = self.functions()
        for name, (op, function) in self.FUSED.items():
            if has_op(op):
                setattr(loaded, name, function)
        return loaded


class InferenceBuilder(FunctionsBuilder):
    """Builder of the kernels that deepspeed.init_inference injects into models."""

    NAME = "transformer_inference"
    BUILD_VAR = "DS_BUILD_TRANSFORMER_INFERENCE"
    functions = TransformerFunctions


class InferenceCoreBuilder(FunctionsBuilder):
    """Builder of the kernels of deepspeed.inference.v2."""

    NAME = "inference_core_ops"
    BUILD_VAR = "DS_BUILD_INFERENCE_CORE_OPS"
    functions = CoreFunctions
