# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_hpu.__about__ import __version__

VENDOR = Vendor(
    key="hpu",
    interface=2,
    accelerator="accel_hpu.accelerator:HPU_Accelerator",
    probe="accel_hpu.probe",
    version=__version__,
)
