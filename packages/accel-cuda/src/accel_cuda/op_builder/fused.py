# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's own operators and our kernels, Lion with our kernels, Lamb with DeepSpeed's."""

from __future__ import annotations

from accel_cuda.kernels.loading import SOURCE
from accel_cuda.op_builder.kernels import or_plain
from accel_ops import fused_optimizers, kernel_builders


class FusedAdamBuilder(kernel_builders.FusedAdamBuilder):
    """Adam and AdamW with torch's kernels for CUDA and ROCm; types that they refuse with our kernels."""

    DEVICE_TYPE = "cuda"
    SOURCE = SOURCE


class FusedLionBuilder(kernel_builders.FusedLionBuilder):
    """`multi_tensor_lion` for deepspeed.ops.lion.FusedLion."""

    SOURCE = SOURCE


FusedLambBuilder = or_plain(fused_optimizers.FusedLambBuilder, "fused_lamb")
