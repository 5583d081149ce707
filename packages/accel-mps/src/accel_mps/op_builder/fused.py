# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's own fused operators, Lamb and Lion in plain torch."""

from __future__ import annotations

from accel_ops.device.routes import torch_fused_adam
from accel_ops.optimizers.fused import ADAM

FusedAdamBuilder = ADAM.builder(__name__, torch_fused_adam("mps"))
