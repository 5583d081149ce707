# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The records that core finds through the entry points `accel.vendors`: one for each variant."""

from accel_core.vendor import Vendor
from accel_xpu.__about__ import __version__

#: torch's own support; a CUDA device is preferred.
VENDOR = Vendor(
    key="xpu",
    interface=2,
    variant="native",
    accelerator="accel_xpu.accelerator:XPU_Accelerator",
    probe="accel_xpu.probe",
    version=__version__,
)

#: Intel Extension for PyTorch.
IPEX = Vendor(
    key="xpu",
    interface=2,
    variant="ipex",
    accelerator="accel_xpu.ipex.accelerator:IPEX_Accelerator",
    probe="accel_xpu.ipex.probe",
    version=__version__,
)

#: The class in Intel Extension for DeepSpeed.
EXTERNAL = Vendor(
    key="xpu.external",
    interface=2,
    accelerator="intel_extension_for_deepspeed:XPU_Accelerator",
    probe="accel_xpu.external",
    imports_deepspeed=True,
    version=__version__,
)
