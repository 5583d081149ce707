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
    distribution="accel-mps",
    requires="torch.mps",
    install="nothing to install: torch.mps is in every torch for macOS, 2.8 or later, and needs a Mac with a GPU",
    version=__version__,
)
