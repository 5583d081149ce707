# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's own operators and our kernels, Lion with our kernels, Lamb in plain torch."""

from __future__ import annotations

from accel_ops.optimizers.fused import ADAM, LION
from accel_ops.routes import kernel_adam, kernel_lion, torch_fused_adam
from accel_xpu.kernels.loading import SOURCE

FusedAdamBuilder = ADAM.builder(__name__, torch_fused_adam("xpu", then=kernel_adam(SOURCE)))
FusedLionBuilder = LION.builder(__name__, kernel_lion(SOURCE))
