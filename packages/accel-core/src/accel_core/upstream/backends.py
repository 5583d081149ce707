# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The installed DeepSpeed, as the selection uses it: its backends, their probes and classes, its import."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass
from typing import Any

from accel_core.devices import Device, known_devices
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
class StockProbe:
    """Probe for a device of the table whose package is not installed."""

    device: Device

    def evidence(self) -> Evidence:
        """Look for the runtime's module, torch's build and device files; imports nothing."""
        if self.device.platform and sys.platform != self.device.platform:
            return Evidence(False, False, f"only on {self.device.platform}, this is {sys.platform}")
        present, found = found_devices(self.device.files, self.device.pci_vendor)
        if missing := self._missing_runtime():
            known = present if self.device.files else None
            return Evidence(False, known, f"{missing}; {found}" if present else missing)
        installed = f"{self.device.runtime or 'this torch'} is installed"
        if self.device.package_only:
            return Evidence(False, None, f"{installed}, which the package alone can use")
        return Evidence(True, present or None, f"{installed}, {found}" if self.device.files else installed)

    def _missing_runtime(self) -> str:
        if self.device.runtime and not module_exists(self.device.runtime):
            return f"{self.device.runtime} is not installed"
        if self.device.library and lacks_library(self.device.runtime, self.device.library):
            return f"{self.device.runtime} is the build for CPUs"
        if not module_exists("torch"):
            return "torch is not installed"
        if self.device.torch_fields and not any(torch_build(field) for field in self.device.torch_fields):
            return f"this torch is built without {' or '.join(self.device.torch_fields)}"
        return ""

    def confirm(self) -> Confirmation:
        """Import the runtime and count devices with torch.<namespace>."""
        if not self.device.namespace:
            return Confirmation(1, "always there")
        import torch

        if self.device.runtime:
            importlib.import_module(self.device.runtime)
        namespace = getattr(torch, self.device.namespace)
        # torch.cuda.is_available() may initialize the driver, after which forked children cannot use the devices.
        usable = not self.device.runtime or namespace.is_available()
        count = int(namespace.device_count()) if usable else 0
        return Confirmation(count, f"torch.{self.device.namespace} counts {count}")


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

    def probe(self, device: Device) -> StockProbe:
        """Return the probe for a device without an installed vendor package."""
        return StockProbe(device)

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
                f"DeepSpeed's own backend for {key!r} cannot be used: {len(classes)} accelerator classes in "
                f"{module.__name__}; expected one class whose name ends with _Accelerator",
                do=(
                    "install the vendor package for this device, or a supported DeepSpeed: "
                    f"{DOCUMENTATION}/upstream.md"
                ),
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
            f"DeepSpeed's own backend for {key!r} cannot make its op builders: {type(error).__name__}: "
            f"{error}",
            do=f"{variable} the vendor's set-up script does, or install the vendor package for this device",
        ) from error


def _import_runtime(key: str) -> None:
    # Detection imports the runtime; for an accelerator that is requested by name it is not imported yet.
    torch = importlib.import_module("torch")
    for device in known_devices(key):
        if device.runtime and not hasattr(torch, device.namespace):
            importlib.import_module(device.runtime)
