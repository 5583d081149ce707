# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of the classic device; DeepSpeed looks every file here through."""

from accel_classic.op_builder.fused_adam import FusedAdamBuilder

__all__ = ["FusedAdamBuilder"]
