# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of DeepSpeed's host ops, for the op tables of all vendor packages."""

from accel_ops.op_builder.adagrad import CPUAdagradBuilder
from accel_ops.op_builder.adam import CPUAdamBuilder, FusedAdamBuilder
from accel_ops.op_builder.async_io import AsyncIOBuilder
from accel_ops.op_builder.flatten import UtilsBuilder
from accel_ops.op_builder.lion import CPULionBuilder, FusedLionBuilder
from accel_ops.op_builder.pin_memory import PinMemoryBuilder

__all__ = [
    "AsyncIOBuilder",
    "CPUAdagradBuilder",
    "CPUAdamBuilder",
    "CPULionBuilder",
    "FusedAdamBuilder",
    "FusedLionBuilder",
    "PinMemoryBuilder",
    "UtilsBuilder",
]
