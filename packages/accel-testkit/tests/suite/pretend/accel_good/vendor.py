# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record."""

from accel_core.vendor import Vendor

VENDOR = Vendor(
    key="good",
    interface=2,
    accelerator="accel_good.accelerator:GOOD_Accelerator",
    probe="accel_good.probe",
    priority=55,
    distribution="accel-good",
    requires="torch_good",
    version="1.0",
)
