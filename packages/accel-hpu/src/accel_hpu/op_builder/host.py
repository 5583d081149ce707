# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops that run on the host, whatever the device."""

from accel_ops.op_builder import (
    AsyncIOBuilder,
    CPUAdagradBuilder,
    CPUAdamBuilder,
    CPULionBuilder,
    PinMemoryBuilder,
    UtilsBuilder,
)

__all__ = [
    "AsyncIOBuilder",
    "CPUAdagradBuilder",
    "CPUAdamBuilder",
    "CPULionBuilder",
    "PinMemoryBuilder",
    "UtilsBuilder",
]
