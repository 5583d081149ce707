# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's own operators; Lamb and Lion with DeepSpeed's kernels, else in plain torch."""

from __future__ import annotations

from accel_core.op_builder import fused
from accel_core.op_builder.torch_fused import TorchFusedAdamBuilder
from accel_cuda.op_builder.kernels import or_plain


class FusedAdamBuilder(TorchFusedAdamBuilder):
    """Adam and AdamW with torch's kernels for CUDA and ROCm; nothing is compiled."""

    DEVICE_TYPE = "cuda"


FusedLambBuilder = or_plain(fused.FusedLambBuilder, "fused_lamb")
FusedLionBuilder = or_plain(fused.FusedLionBuilder, "fused_lion")
