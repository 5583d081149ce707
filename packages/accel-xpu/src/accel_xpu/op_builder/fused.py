# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers in plain torch, whose foreach operators have kernels for XPU."""

from accel_core.op_builder.fused import FusedAdamBuilder, FusedLambBuilder, FusedLionBuilder

__all__ = ["FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder"]
