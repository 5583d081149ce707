# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_mps.__about__ import __version__

VENDOR = Vendor(
    key="mps",
    interface=2,
    accelerator="accel_mps.accelerator:MPS_Accelerator",
    probe="accel_mps.probe",
    version=__version__,
)
