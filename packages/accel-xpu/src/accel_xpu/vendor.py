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
    distribution="accel-xpu",
    requires="torch",
    install='pip uninstall -y torch && pip install "torch=={release}" --index-url followed by the index for Intel GPUs '
    "that PyTorch's installation page names (the build with XPU, 2.8 or later)",
    yields_to=("cuda",),
    version=__version__,
)

#: Intel Extension for PyTorch.
IPEX = Vendor(
    key="xpu",
    interface=2,
    variant="ipex",
    accelerator="accel_xpu.ipex.accelerator:IPEX_Accelerator",
    probe="accel_xpu.ipex.probe",
    distribution="accel-xpu",
    requires="intel_extension_for_pytorch",
    version=__version__,
)

#: The class in Intel Extension for DeepSpeed.
EXTERNAL = Vendor(
    key="xpu.external",
    interface=2,
    accelerator="intel_extension_for_deepspeed:XPU_Accelerator",
    probe="accel_xpu.external",
    distribution="accel-xpu",
    requires="intel_extension_for_deepspeed",
    install="set DS_ACCELERATOR=xpu instead: the only release of intel_extension_for_deepspeed, 0.9.4, lacks methods",
    imports_deepspeed=True,
    version=__version__,
)
