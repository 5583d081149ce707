# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of DeepSpeed's inference ops: plain torch, and the vendor's own ops where its runtime has them.

A vendor whose runtime has none puts these classes into its table as they are. One that has derives::

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

#: By a function's name: an op below `torch.ops`, and what takes the function's place where the runtime has it.
FusedFunctions = Mapping[str, tuple[str, Callable[..., Any]]]


class FunctionsBuilder(OpBuilder):
    """Serves an object with many functions; nothing is compiled.

    functions: its class. FUSED: what the vendor's runtime has ops for.
    """

    functions: ClassVar[type[OpFunctions]]
    FUSED: ClassVar[FusedFunctions] = {}

    def compatibility(self) -> tuple[bool, str]:
        """Always: plain torch serves where an op is missing."""
        found = sorted({op for op, _ in self.FUSED.values() if has_op(op)})
        ops = ", ".join(f"torch.ops.{op}" for op in found)
        return True, f"{ops}; the rest in plain torch" if found else "plain torch"

    def load(self, verbose: bool = True) -> Any:
        """A new object with upstream's functions."""
        loaded = self.functions()
        for name, (op, function) in self.FUSED.items():
            if has_op(op):
                setattr(loaded, name, function)
        return loaded


class InferenceBuilder(FunctionsBuilder):
    """For models into which deepspeed.init_inference injects kernels."""

    NAME = "transformer_inference"
    BUILD_VAR = "DS_BUILD_TRANSFORMER_INFERENCE"
    functions = TransformerFunctions


class InferenceCoreBuilder(FunctionsBuilder):
    """For the kernels of deepspeed.inference.v2."""

    NAME = "inference_core_ops"
    BUILD_VAR = "DS_BUILD_INFERENCE_CORE_OPS"
    functions = CoreFunctions
