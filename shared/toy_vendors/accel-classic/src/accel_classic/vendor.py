# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds: all that is new in this package."""

from __future__ import annotations

import os

from accel_core.vendor import Confirmation, Evidence, Vendor

VENDOR = Vendor(
    key="classic",
    interface=2,
    accelerator="accel_classic.classic_accelerator:Classic_Accelerator",
    probe="accel_classic.vendor",
    # Below the CPU unless a test wants it higher.
    priority=int(os.environ.get("CLASSIC_PRIORITY", "-100")),
    distribution="accel-classic",
    requires="deepspeed",
    imports_deepspeed=True,
)


def evidence() -> Evidence:
    """It is always there."""
    return Evidence(runtime=True, hardware=True, reason="the classic device is pretended")


def confirm() -> Confirmation:
    """One device."""
    return Confirmation(1, "one pretended device")
