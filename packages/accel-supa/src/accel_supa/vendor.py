# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_supa.__about__ import __version__

VENDOR = Vendor(
    key="supa",
    interface=2,
    accelerator="accel_supa.accelerator:SUPA_Accelerator",
    probe="accel_supa.probe",
    version=__version__,
)
