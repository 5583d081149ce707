# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Code that a stub package runs at its import: `import torch_npu` activates the simulated device."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from accel_sim import behaviours, settings, vendors


def populate(name: str) -> None:
    """Fill the package of that name, which is being imported, and everything below it."""
    behaviours.fail(name, settings.read().behaviours)
    top = name.partition(".")[0]
    torch = _import_torch("1" if top == "torch_npu" else None)
    if top == "torch_npu":
        _check_cann()

    from accel_sim import activation, package_names, surface

    vendor = vendors.of_package(top)
    active = activation.activate(vendor.key)
    package = sys.modules[name]
    simulated = package_names.exports(active, name)
    surface.fill(package, name, surface.load(vendor.surface), {**simulated, vendor.key: active.module})
    if vendor.device_type:
        return  # the package has no module of its own for the device
    sys.modules[f"{name}.{vendor.key}"] = active.module
    setattr(package, vendor.key, getattr(torch, vendor.key))
    inside = f"torch.{vendor.key}."
    for each in [each for each in sys.modules if each.startswith(inside)]:
        sys.modules[f"{name}.{vendor.key}.{each.removeprefix(inside)}"] = sys.modules[each]


def transfer() -> None:
    """Let programs that say cuda run on the device: `torch_npu.contrib.transfer_to_npu`, and supa's entry point."""
    from accel_sim import package_names, simulation

    active = simulation.current()
    assert active is not None
    package_names.transfer(active)
    if active.type == "supa":  # what _autoload of torch_supa leaves set
        os.environ["IS_CUSTOM_DEVICE_BACKEND_IMPORTED"] = "1"
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
        sys.modules["torch"].version.cuda = "12.4"


def _import_torch(left: str | None) -> Any:
    """Import torch as torch_npu does: torch would call the entry point of the package that is being imported.

    left: the switch that stays in the environment where it was not set.
    """
    before = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", left)
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        return importlib.import_module("torch")
    finally:
        if before is None:
            del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
        else:
            os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = before


def _check_cann() -> None:
    """Look for CANN as torch_npu's import does: print a line without ASCEND_HOME_PATH, raise for a part that lacks."""
    home = os.environ.get("ASCEND_HOME_PATH")
    if home is None:
        sys.stdout.write("Warning: ASCEND_HOME_PATH environment variable is not set.\n")
        return
    if "ASCEND_OPP_PATH" not in os.environ:
        raise Exception("ASCEND_OPP_PATH environment variable is not set.")
    parts = {"RUNTIME": os.path.join(home, "runtime"), "COMPILER": os.path.join(home, "compiler")}
    for part, path in {"HOME": home, "OPP": os.environ["ASCEND_OPP_PATH"], **parts}.items():
        if not os.path.exists(path):
            raise Exception(f"ASCEND_{part}_PATH : {path} does not exist.")


def activate_in_torch() -> None:
    """Activate a device whose module is torch's own; called at the end of `import torch`."""
    from accel_sim import activation

    key = settings.DEVICE.get()
    # One with its own package comes with the import of that.
    if key and not vendors.find(key).packages:
        activation.activate(key)


def fail_import(name: str) -> None:
    """Raise what the import of the real package raises."""
    behaviours.fail(name, settings.read().behaviours)
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def autoload(name: str) -> None:
    """Import a runtime; the target of its entry point."""
    importlib.import_module(name)
