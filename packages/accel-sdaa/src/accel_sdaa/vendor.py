# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_sdaa.__about__ import __version__

VENDOR = Vendor(
    key="sdaa",
    interface=2,
    accelerator="accel_sdaa.accelerator:SDAA_Accelerator",
    probe="accel_sdaa.probe",
    version=__version__,
)
