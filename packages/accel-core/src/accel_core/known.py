# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The names of DeepSpeed's cascade: the one data table of core that speaks of vendors.

It serves three ends: the order of the cascade, the sentence a user reads when a package or a runtime is
missing, and the generic probe by which a device that no installed package serves is left to DeepSpeed's
own backend.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """One row of the cascade.

    class_name:   the accelerator class users know.
    requires:     its runtime in the user's words; completes "<class_name> requires …".
    distribution: the package of ours that serves it; empty where only DeepSpeed does.
    runtime:      module whose presence is the evidence; empty when it is part of torch.
    namespace:    attribute of torch that counts devices.
    device_nodes: glob patterns of device files; empty when there are none to look for.
    torch_build:  attributes of torch.version of which one is set in builds with this device.
    platform:     sys.platform of the only system that has it; empty for any.
    """

    key: str
    priority: int
    class_name: str
    requires: str
    distribution: str
    runtime: str = ""
    namespace: str = ""
    device_nodes: tuple[str, ...] = ()
    torch_build: tuple[str, ...] = ()
    road: str = ""
    privateuse1: str = ""
    platform: str = ""
    yields_to: tuple[str, ...] = ()

    def sentence(self) -> str:
        """`NPU_Accelerator requires torch_npu`."""
        return f"{self.class_name} requires {self.requires}"


_XPU_RUNTIME = "intel_extension_for_pytorch (or torch >= 2.8 with XPU)"

CASCADE = (
    Known("xpu.external", 1000, "XPU_Accelerator", "intel_extension_for_deepspeed", "accel-xpu",
          runtime="intel_extension_for_deepspeed", namespace="xpu", device_nodes=("dev/dri/renderD*",)),
    Known("xpu", 900, "XPU_Accelerator", _XPU_RUNTIME, "accel-xpu", road="ipex",
          runtime="intel_extension_for_pytorch", namespace="xpu", device_nodes=("dev/dri/renderD*",)),
    Known("xpu", 800, "XPU_Accelerator", _XPU_RUNTIME, "accel-xpu", road="native",
          namespace="xpu", device_nodes=("dev/dri/renderD*",), torch_build=("xpu",), yields_to=("cuda",)),
    Known("npu", 700, "NPU_Accelerator", "torch_npu", "accel-npu", privateuse1="npu",
          runtime="torch_npu", namespace="npu", device_nodes=("dev/davinci[0-9]*",)),
    Known("sdaa", 600, "SDAA_Accelerator", "torch_sdaa", "accel-sdaa", privateuse1="sdaa",
          runtime="torch_sdaa", namespace="sdaa", device_nodes=("dev/tcaicard[0-9]*",)),
    Known("mps", 500, "MPS_Accelerator", "torch.mps", "accel-mps", namespace="mps", platform="darwin"),
    Known("hpu", 400, "HPU_Accelerator", "habana_frameworks.torch.hpu", "accel-hpu",
          runtime="habana_frameworks.torch.hpu", namespace="hpu",
          device_nodes=("dev/accel/accel[0-9]*", "dev/hl[0-9]*")),
    Known("mlu", 300, "MLU_Accelerator", "torch_mlu", "accel-mlu", privateuse1="mlu",
          runtime="torch_mlu", namespace="mlu", device_nodes=("dev/cambricon_dev[0-9]*",)),
    Known("cuda", 200, "CUDA_Accelerator", "a torch build with CUDA or ROCm", "accel-cuda",
          namespace="cuda", device_nodes=("dev/nvidia[0-9]*", "dev/kfd", "dev/dxg"), torch_build=("cuda", "hip")),
    Known("cpu", 0, "CPU_Accelerator", "torch", "accel-cpu"),
)  # fmt: skip

#: DeepSpeed has a backend for these and this project has no package.
UPSTREAM_ONLY = (
    Known("supa", 250, "SUPA_Accelerator", "torch_supa", "", runtime="torch_supa", namespace="supa",
          privateuse1="supa"),
    Known("klxpu", 225, "KLXPU_Accelerator", "torch_xmlir", "", runtime="torch_xmlir", namespace="cuda"),
)  # fmt: skip

ROWS = CASCADE + UPSTREAM_ONLY
CPU_KEY = "cpu"

#: Names that DS_ACCELERATOR takes whatever is installed, in the order users know from DeepSpeed.
SUPPORTED_ACCELERATOR_LIST = ["cuda", "cpu", "xpu", "xpu.external", "npu", "mps", "hpu", "mlu", "sdaa"]


def rows(key: str) -> tuple[Known, ...]:
    """The rows with this key, highest priority first; empty for a third party's key."""
    return tuple(row for row in ROWS if row.key == key)


def priority(key: str, road: str = "") -> int:
    """The cascade's priority of a known name; raises KeyError for any other."""
    for row in rows(key):
        if row.road == road or not road:
            return row.priority
    raise KeyError(f"{key} {road}".strip())
