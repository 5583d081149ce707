# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's own operators and our kernels, Lion with our kernels, Lamb in plain torch."""

from __future__ import annotations

from accel_ops import kernel_builders
from accel_xpu.kernels.loading import SOURCE


class FusedAdamBuilder(kernel_builders.FusedAdamBuilder):
    """Adam and AdamW with torch's kernels for xpu; types that they refuse with our kernels."""

    DEVICE_TYPE = "xpu"
    SOURCE = SOURCE


class FusedLionBuilder(kernel_builders.FusedLionBuilder):
    """`multi_tensor_lion` for deepspeed.ops.lion.FusedLion."""

    SOURCE = SOURCE
