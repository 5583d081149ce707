# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The installed DeepSpeed, as the selection uses it: its backends, their probes and classes, its import."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass
from typing import Any

from accel_core.cascade import CPU_KEY
from accel_core.errors import DOCUMENTATION, UpstreamMissing
from accel_core.vendor import (
    Confirmation,
    Evidence,
    deepspeed_folder,
    found_devices,
    lacks_library,
    module_exists,
    torch_build,
)


@dataclass(frozen=True)
class Upstream:
    """A probe described by data.

    namespace:    attribute of torch that counts devices; empty for the CPU, which is always present.
    runtime:      module of the runtime; empty if it is part of torch.
    files:        glob patterns of device files; empty if there are none.
    torch_fields: attributes of torch.version; builds for this device set one of them.
    pci_vendor:   PCI vendor of the device, where devices of all vendors have such files.
    library:      glob pattern of the runtime's library for the device, which its builds for CPUs lack.
    platform:     the only sys.platform with such devices; empty for any.
    package_only: DeepSpeed has no backend for this key, and another entry is for the same device.
    privateuse1, yields_to: as in `accel_core.vendor.Vendor`.
    """

    namespace: str
    runtime: str = ""
    files: tuple[str, ...] = ()
    torch_fields: tuple[str, ...] = ()
    pci_vendor: str = ""
    library: str = ""
    platform: str = ""
    package_only: bool = False
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()

    def evidence(self) -> Evidence:
        """Look for the runtime's module, torch's build and device files; imports nothing."""
        if self.platform and sys.platform != self.platform:
            return Evidence(False, False, f"only on {self.platform}, this is {sys.platform}")
        present, found = found_devices(self.files, self.pci_vendor)
        missing = self._missing_runtime()
        if missing:
            return Evidence(False, present if self.files else None, missing)
        installed = f"{self.runtime or 'this torch'} is installed"
        if self.package_only:
            return Evidence(False, None, f"{installed}, which the package alone can use")
        return Evidence(True, present or None, f"{installed}, {found}" if self.files else installed)

    def _missing_runtime(self) -> str:
        if self.runtime and not module_exists(self.runtime):
            return f"{self.runtime} is not installed"
        if self.library and lacks_library(self.runtime, self.library):
            return f"{self.runtime} is the build for CPUs"
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
        # torch.cuda.is_available() may initialize the driver, after which forked children cannot use the devices.
        usable = not self.runtime or namespace.is_available()
        count = int(namespace.device_count()) if usable else 0
        return Confirmation(count, f"torch.{self.namespace} counts {count}")


_RENDER_NODES = ("dev/dri/renderD*", "dev/dxg")
_INTEL, _HABANA = "0x8086", "0x1da3"

#: By key and variant of the entry in the cascade.
BACKENDS = {
    ("xpu.external", ""): Upstream("xpu", "intel_extension_for_deepspeed", package_only=True),
    ("xpu", "ipex"): Upstream(
        "xpu", "intel_extension_for_pytorch", _RENDER_NODES, pci_vendor=_INTEL, library="*intel-ext-pt-gpu*"
    ),
    ("xpu", "native"): Upstream(
        "xpu", files=_RENDER_NODES, torch_fields=("xpu",), pci_vendor=_INTEL, yields_to=("cuda",)
    ),
    ("npu", ""): Upstream("npu", "torch_npu", ("dev/davinci[0-9]*", "dev/vdavinci[0-9]*"), privateuse1="npu"),
    ("sdaa", ""): Upstream("sdaa", "torch_sdaa", ("dev/tcaicard[0-9]*",), privateuse1="sdaa"),
    ("mps", ""): Upstream("mps", platform="darwin"),
    ("hpu", ""): Upstream(
        "hpu", "habana_frameworks.torch.hpu", ("dev/accel/accel[0-9]*", "dev/hl[0-9]*"), pci_vendor=_HABANA
    ),
    ("mlu", ""): Upstream("mlu", "torch_mlu", ("dev/cambricon_dev[0-9]*",), privateuse1="mlu"),
    ("supa", ""): Upstream("supa", "torch_supa", privateuse1="supa"),
    ("klxpu", ""): Upstream("cuda", "torch_xmlir"),
    ("cuda", ""): Upstream(
        "cuda",
        files=(
            "dev/nvidia[0-9]*",
            "dev/kfd",
            "dev/dxg",
            "dev/nvhost-gpu",
            "dev/nvgpu/igpu[0-9]*/ctrl",
            "dev/mxcd",
            "dev/iluvatar[0-9]*",
        ),
        torch_fields=("cuda", "hip"),
    ),
    (CPU_KEY, ""): Upstream(""),
}


_SUFFIX = "_accelerator"
_NO_BACKENDS = {"abstract", "real"}


class StockDeepSpeed:
    """The installed deepspeed. Only `load` and `accelerator` import it."""

    def keys(self) -> frozenset[str] | None:
        """Return the keys of its backends; None if it is not installed."""
        folder = deepspeed_folder()
        if folder is None:
            return None
        stems = (path.stem for path in (folder / "accelerator").glob(f"*{_SUFFIX}.py"))
        return frozenset(stem.removesuffix(_SUFFIX) for stem in stems) - _NO_BACKENDS

    def backend(self, key: str, variant: str) -> Upstream:
        """Return the probe for an entry of the cascade without an installed vendor package."""
        return BACKENDS[key, variant]

    def load(self) -> None:
        """Import deepspeed, which calls `get_accelerator()`."""
        importlib.import_module("deepspeed")
        _attach_submodules()

    def importing(self) -> bool:
        """Return whether deepspeed is being imported."""
        spec = getattr(sys.modules.get("deepspeed"), "__spec__", None)
        return bool(getattr(spec, "_initializing", False))

    def launching(self) -> bool:
        """Return whether this process is one of DeepSpeed's launcher: the script or one of its modules."""
        program = sys.modules.get("__main__")
        spec, main = getattr(program, "__spec__", None), getattr(program, "main", None)
        name = spec.name if spec else str(getattr(main, "__module__", ""))
        return name.startswith("deepspeed.launcher.")

    def accelerator(self, key: str) -> Any:
        """Return a new instance of DeepSpeed's own class for a key, without using its detection.

        The detection reads the environment again and could find another accelerator.
        """
        _import_runtime(key)
        module = importlib.import_module(f"deepspeed.accelerator.{key}{_SUFFIX}")
        classes = [
            cls
            for name, cls in inspect.getmembers(module, inspect.isclass)
            if name.endswith("_Accelerator") and cls.__module__ == module.__name__
        ]
        if len(classes) != 1:
            raise UpstreamMissing(
                what=f"DeepSpeed's own backend for {key!r} cannot be used",
                found=f"{len(classes)} accelerator classes in {module.__name__}",
                expected="one class whose name ends with _Accelerator",
                do="install the vendor package for this device, or a supported DeepSpeed: "
                f"{DOCUMENTATION}/upstream.md",
            )
        accelerator = classes[0]()
        _refuse_without_builders(accelerator, key)
        return accelerator


def _attach_submodules() -> None:
    # After a failed import of deepspeed, its next import does not set the loaded submodules as attributes.
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if name.startswith("deepspeed.") and parent in sys.modules and child not in vars(sys.modules[parent]):
            setattr(sys.modules[parent], child, module)


def _refuse_without_builders(accelerator: Any, key: str) -> None:
    """Raise UpstreamMissing if creating one of its op builders fails, as DeepSpeed's npu does without CANN.

    DeepSpeed creates all of them: at its import (0.18), or at the first query of its ops.
    """
    if "deepspeed.ops.op_builder" not in sys.modules:
        return  # its import, which calls get_accelerator(), is still to come
    try:
        accelerator.create_op_builder("NotImplementedBuilder")
    except Exception as error:
        variable = f"export {error.args[0]}, as" if isinstance(error, KeyError) else "do what"
        raise UpstreamMissing(
            what=f"DeepSpeed's own backend for {key!r} cannot make its op builders",
            found=f"{type(error).__name__}: {error}",
            expected="op builders that can be made, as DeepSpeed's import or its first step does",
            do=f"{variable} the vendor's set-up script does, or install the vendor package for this device",
        ) from error


def _import_runtime(key: str) -> None:
    # Detection imports the runtime; for an accelerator that is requested by name it is not imported yet.
    torch = importlib.import_module("torch")
    for (name, _), backend in BACKENDS.items():
        if name == key and backend.runtime and not hasattr(torch, backend.namespace):
            importlib.import_module(backend.runtime)
