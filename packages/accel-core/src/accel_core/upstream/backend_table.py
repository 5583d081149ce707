# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probes for DeepSpeed's own backends, used for devices without an installed vendor package.

One row per backend in DeepSpeed. If a vendor package is installed, its own probe is used instead. The rows look
for device files, because an importable wheel does not show that there is a device.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from accel_core.cascade import CPU_KEY
from accel_core.vendor import Confirmation, Evidence, device_files, module_exists, system_root, torch_build


@dataclass(frozen=True)
class Backend:
    """A probe described by data.

    namespace:    attribute of torch that counts devices; empty for the CPU, which is always present.
    runtime:      module of the runtime; empty if it is part of torch.
    files:        glob patterns of device files; empty if there are none.
    torch_fields: attributes of torch.version; builds for this device set one of them.
    pci_vendor:   PCI vendor of the device, where devices of all vendors have such files.
    platform:     the only sys.platform with such devices; empty for any.
    package_only: DeepSpeed has no backend for this key, and another entry is for the same device.
    privateuse1, yields_to: as in `accel_core.vendor.Vendor`.
    """

    namespace: str
    runtime: str = ""
    files: tuple[str, ...] = ()
    torch_fields: tuple[str, ...] = ()
    pci_vendor: str = ""
    platform: str = ""
    package_only: bool = False
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()

    def evidence(self) -> Evidence:
        """Look for the runtime's module, torch's build and device files; imports nothing."""
        if self.platform and sys.platform != self.platform:
            return Evidence(False, False, f"only on {self.platform}, this is {sys.platform}")
        missing = self._missing_runtime()
        if missing:
            return Evidence(False, bool(self._device_files()) if self.files else None, missing)
        installed = f"{self.runtime or 'this torch'} is installed"
        if self.package_only:
            return Evidence(False, None, f"{installed}, which the package alone can use")
        if not self.files:
            return Evidence(True, None, installed)
        present = self._device_files()
        if not present:
            return Evidence(True, False, f"{installed}, no device file {' or '.join(self.files)}")
        return Evidence(True, True, f"{installed}, {present[0]} exists")

    def _device_files(self) -> list[Path]:
        return [file for file in device_files(self.files) if _pci_vendor(file) in ("", self.pci_vendor)]

    def _missing_runtime(self) -> str:
        if self.runtime and not module_exists(self.runtime):
            return f"{self.runtime} is not installed"
        if not module_exists("torch"):
            return "torch is not installed"
        if self.torch_fields and not any(torch_build(field) for field in self.torch_fields):
            return f"this torch is built without {' or '.join(self.torch_fields)}"
        return ""

    def confirm(self) -> Confirmation:
        """Import the runtime and count devices with torch.<namespace>."""
        if not self.namespace:
            return Confirmation(1, "always there")
        import torch

        if self.runtime:
            importlib.import_module(self.runtime)
        namespace = getattr(torch, self.namespace)
        count = int(namespace.device_count()) if namespace.is_available() else 0
        return Confirmation(count, f"torch.{self.namespace} counts {count}")


def _pci_vendor(file: Path) -> str:
    """Return the PCI vendor of a render node from /sys; empty if unknown."""
    try:
        return (system_root() / "sys/class/drm" / file.name / "device/vendor").read_text().strip()
    except OSError:
        return ""


_RENDER_NODES = ("dev/dri/renderD*",)
_INTEL = "0x8086"

#: By key and variant of the entry in the cascade.
BACKENDS = {
    ("xpu.external", ""): Backend("xpu", "intel_extension_for_deepspeed", package_only=True),
    ("xpu", "ipex"): Backend("xpu", "intel_extension_for_pytorch", _RENDER_NODES, pci_vendor=_INTEL),
    ("xpu", "native"): Backend(
        "xpu", files=_RENDER_NODES, torch_fields=("xpu",), pci_vendor=_INTEL, yields_to=("cuda",)
    ),
    ("npu", ""): Backend("npu", "torch_npu", ("dev/davinci[0-9]*",), privateuse1="npu"),
    ("sdaa", ""): Backend("sdaa", "torch_sdaa", ("dev/tcaicard[0-9]*",), privateuse1="sdaa"),
    ("mps", ""): Backend("mps", platform="darwin"),
    ("hpu", ""): Backend("hpu", "habana_frameworks.torch.hpu", ("dev/accel/accel[0-9]*", "dev/hl[0-9]*")),
    ("mlu", ""): Backend("mlu", "torch_mlu", ("dev/cambricon_dev[0-9]*",), privateuse1="mlu"),
    ("supa", ""): Backend("supa", "torch_supa", privateuse1="supa"),
    ("klxpu", ""): Backend("cuda", "torch_xmlir"),
    ("cuda", ""): Backend(
        "cuda", files=("dev/nvidia[0-9]*", "dev/kfd", "dev/dxg"), torch_fields=("cuda", "hip")
    ),
    (CPU_KEY, ""): Backend(""),
}
