# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_npu.__about__ import __version__

VENDOR = Vendor(
    key="npu",
    interface=2,
    accelerator="accel_npu.accelerator:NPU_Accelerator",
    probe="accel_npu.probe",
    version=__version__,
)
