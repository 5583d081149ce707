# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: DeepSpeed's CUDA kernels if they can be compiled, else plain torch."""

from __future__ import annotations

from accel_core.op_builder import fused
from accel_cuda.op_builder.kernels import or_plain

FusedAdamBuilder = or_plain(fused.FusedAdamBuilder, "fused_adam")
FusedLambBuilder = or_plain(fused.FusedLambBuilder, "fused_lamb")
FusedLionBuilder = or_plain(fused.FusedLionBuilder, "fused_lion")
