# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The records that core finds through the entry points `accel.vendors`: one for each road to an Intel GPU."""

from accel_core import known
from accel_core.vendor import Vendor
from accel_xpu.__about__ import __version__

#: torch's own support, on a machine without a CUDA device.
VENDOR = Vendor(
    key="xpu",
    road="native",
    accelerator="accel_xpu.accelerator:XPU_Accelerator",
    probe="accel_xpu.probe",
    priority=known.priority("xpu", "native"),
    distribution="accel-xpu",
    requires="torch",
    yields_to=("cuda",),
    version=__version__,
)

#: Intel Extension for PyTorch.
IPEX = Vendor(
    key="xpu",
    road="ipex",
    accelerator="accel_xpu.ipex.accelerator:XPU_Accelerator",
    probe="accel_xpu.ipex.probe",
    priority=known.priority("xpu", "ipex"),
    distribution="accel-xpu",
    requires="intel_extension_for_pytorch",
    version=__version__,
)

#: The class that Intel Extension for DeepSpeed brings.
EXTERNAL = Vendor(
    key="xpu.external",
    accelerator="intel_extension_for_deepspeed:XPU_Accelerator",
    probe="accel_xpu.external",
    priority=known.priority("xpu.external"),
    distribution="accel-xpu",
    requires="intel_extension_for_deepspeed",
    imports_deepspeed=True,
    version=__version__,
)
