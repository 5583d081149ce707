# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: DeepSpeed's CUDA kernels where they can be compiled, plain torch where not."""

from __future__ import annotations

from accel_core.op_builder import fused
from accel_cuda.op_builder.kernels import KernelOrPlainBuilder


class FusedAdamBuilder(KernelOrPlainBuilder):
    """Adam and AdamW."""

    NAME = fused.FusedAdamBuilder.NAME
    BUILD_VAR = fused.FusedAdamBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.fused_adam.FusedAdamBuilder",)
    plain = fused.FusedAdamBuilder


class FusedLambBuilder(KernelOrPlainBuilder):
    """LAMB."""

    NAME = fused.FusedLambBuilder.NAME
    BUILD_VAR = fused.FusedLambBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.fused_lamb.FusedLambBuilder",)
    plain = fused.FusedLambBuilder


class FusedLionBuilder(KernelOrPlainBuilder):
    """Lion."""

    NAME = fused.FusedLionBuilder.NAME
    BUILD_VAR = fused.FusedLionBuilder.BUILD_VAR
    UPSTREAM = ("deepspeed.ops.op_builder.fused_lion.FusedLionBuilder",)
    plain = fused.FusedLionBuilder
