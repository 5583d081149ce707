# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops that run on the host, whatever the device."""

from accel_core.upstream.host_ops import CPUAdagradBuilder, CPUAdamBuilder, CPULionBuilder, PinMemoryBuilder

__all__ = ["CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "PinMemoryBuilder"]
