# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that core finds through the entry point `accel.vendors`."""

from accel_core.vendor import Variable, Vendor
from accel_cuda.__about__ import __version__

DEPRECATED_FP16 = Variable(
    "DS_ALLOW_DEPRECATED_FP16", "0", "1: train in fp16 on devices of compute capability 6 (DeepSpeed's own)."
)

VENDOR = Vendor(
    key="cuda",
    interface=2,
    accelerator="accel_cuda.accelerator:CUDA_Accelerator",
    probe="accel_cuda.probe",
    variables=(DEPRECATED_FP16,),
    version=__version__,
)
