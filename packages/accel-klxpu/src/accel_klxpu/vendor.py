# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_klxpu.__about__ import __version__

VENDOR = Vendor(
    key="klxpu",
    interface=2,
    accelerator="accel_klxpu.accelerator:KLXPU_Accelerator",
    probe="accel_klxpu.probe",
    version=__version__,
)
