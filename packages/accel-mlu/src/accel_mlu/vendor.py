# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_mlu.__about__ import __version__

VENDOR = Vendor(
    key="mlu",
    interface=2,
    accelerator="accel_mlu.accelerator:MLU_Accelerator",
    probe="accel_mlu.probe",
    version=__version__,
)
