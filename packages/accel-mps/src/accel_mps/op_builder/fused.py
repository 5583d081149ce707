# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's own fused operators, Lamb and Lion in plain torch."""

from __future__ import annotations

from accel_ops.optimizers.fused import ADAM
from accel_ops.routes import torch_fused_adam

FusedAdamBuilder = ADAM.builder(__name__, torch_fused_adam("mps"))
