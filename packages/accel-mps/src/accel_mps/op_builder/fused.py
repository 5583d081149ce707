# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's own fused operators, Lamb and Lion in plain torch."""

from __future__ import annotations

from accel_ops.kernel_builders import TorchFusedAdamBuilder


class FusedAdamBuilder(TorchFusedAdamBuilder):
    """Adam and AdamW with torch's kernels for mps."""

    DEVICE_TYPE = "mps"
