# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops by our kernels: Adam (torch's own operators first) and Lion, and the quantizer; else plain torch."""

from __future__ import annotations

from accel_cuda.kernels.loading import SOURCE
from accel_ops import kernel_builders


class FusedAdamBuilder(kernel_builders.FusedAdamBuilder):
    """Adam and AdamW with torch's kernels for CUDA and ROCm; types that they refuse with our kernels."""

    DEVICE_TYPE = "cuda"
    SOURCE = SOURCE


class FusedLionBuilder(kernel_builders.FusedLionBuilder):
    """`multi_tensor_lion` for deepspeed.ops.lion.FusedLion."""

    SOURCE = SOURCE


class QuantizerBuilder(kernel_builders.QuantizerBuilder):
    """Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights."""

    SOURCE = SOURCE
