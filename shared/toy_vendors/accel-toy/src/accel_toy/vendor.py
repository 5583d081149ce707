# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from __future__ import annotations

import os

from accel_core.vendor import Vendor

VENDOR = Vendor(
    key="toy",
    interface=2,
    accelerator="accel_toy.accelerator:Toy_Accelerator",
    probe="accel_toy.probe",
    # A real vendor writes a number; the variable lets tests place this one anywhere in the cascade.
    priority=int(os.environ.get("TOY_PRIORITY", "2000")),
    distribution="accel-toy",
    requires="the toy driver",
)
