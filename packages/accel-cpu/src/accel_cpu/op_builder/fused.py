# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: the host kernels' Adam and Lion, LAMB in plain torch."""

from accel_ops.fused_optimizers import FusedLambBuilder
from accel_ops.op_builder import FusedAdamBuilder, FusedLionBuilder

__all__ = ["FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder"]
