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
    distribution="accel-hpu",
    requires="habana_frameworks.torch.hpu",
    install="take habana-torch-plugin and the torch that belongs to it from Intel's Gaudi software 1.23 or later, or "
    "its container image: neither is on the index, and the plugin does not work with torch {torch} of another origin",
    version=__version__,
)
