# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Vendor
from accel_cuda.__about__ import __version__
from accel_cuda.variables import VARIABLES

VENDOR = Vendor(
    key="cuda",
    interface=2,
    accelerator="accel_cuda.accelerator:CUDA_Accelerator",
    probe="accel_cuda.probe",
    distribution="accel-cuda",
    requires="torch",
    install='pip uninstall -y torch && pip install "torch=={release}" (on Linux the index has the build with CUDA; '
    "PyTorch's installation page names the indexes for ROCm and other releases of CUDA)",
    variables=VARIABLES,
    version=__version__,
)
