# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of DeepSpeed's host ops, for the op tables of all vendor packages."""

from accel_ops.op_builder.async_io import AsyncIOBuilder
from accel_ops.op_builder.memory import PinMemoryBuilder, UtilsBuilder
from accel_ops.op_builder.optimizers import (
    CPUAdagradBuilder,
    CPUAdamBuilder,
    CPULionBuilder,
    FusedAdamBuilder,
    FusedLionBuilder,
)

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
