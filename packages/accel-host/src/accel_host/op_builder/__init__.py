# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's host ops, for the op table of every vendor: nothing is compiled where a wheel carries the library."""

from accel_host.op_builder.adagrad import CPUAdagradBuilder
from accel_host.op_builder.adam import CPUAdamBuilder, FusedAdamBuilder
from accel_host.op_builder.flatten import UtilsBuilder
from accel_host.op_builder.lion import CPULionBuilder, FusedLionBuilder
from accel_host.op_builder.pin_memory import PinMemoryBuilder

__all__ = [
    "CPUAdagradBuilder",
    "CPUAdamBuilder",
    "CPULionBuilder",
    "FusedAdamBuilder",
    "FusedLionBuilder",
    "PinMemoryBuilder",
    "UtilsBuilder",
]
