# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_cpu import launch
from accel_cpu.__about__ import __version__

VENDOR = Vendor(
    key="cpu",
    interface=2,
    accelerator="accel_cpu.accelerator:CPU_Accelerator",
    probe="accel_cpu.probe",
    variables=(launch.VISIBLE_DEVICES, launch.BACKEND),
    version=__version__,
)
