# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The toy driver is always here; it counts how many devices it counts."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence


def evidence() -> Evidence:
    """Only the driver knows whether there are devices; imports nothing."""
    return Evidence(runtime=True, hardware=None, reason="the toy driver is part of accel-toy")


def confirm() -> Confirmation:
    """Import the driver and count; raises RuntimeError when the driver is broken."""
    from accel_toy import driver

    count = driver.device_count()
    return Confirmation(count, f"the toy driver counts {count} devices")
