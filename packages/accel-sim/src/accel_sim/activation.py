# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Activate the simulated device in this process: load the extension, then register the device type with torch."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ExtensionFileLoader
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils import backend_registration

from accel_core.native import build as native_build
from accel_core.vendor import torch_threads
from accel_sim import (
    build,
    collectives,
    device_type,
    execution_modes,
    ops,
    runtime,
    settings,
    surface,
    vendor_module,
    vendors,
)
from accel_sim.errors import AlreadySimulating
from accel_sim.simulation import Simulation, current, set_current
from accel_sim.vendors import SimVendor


def activate(key: str) -> Simulation:
    """Simulate a vendor's device in this process. Raises `AlreadySimulating` after another one."""
    vendor = vendors.find(key)
    active = current()
    if active is not None:
        if active.vendor == vendor:
            return active
        raise AlreadySimulating(
            what=f"{key} cannot be simulated in this process",
            found=f"it already simulates {active.vendor.key}",
            expected="one kind of device a process",
            do="start another process",
        )
    simulation = _start(vendor)
    set_current(simulation)
    _register(simulation)
    torch_threads.finish_at_exit()
    return simulation


def _start(vendor: SimVendor) -> Simulation:
    chosen = settings.read()
    physical = vendors.visible_devices(vendor, chosen.devices, os.environ)[: vendor.max_devices]
    native = _load()
    if vendor.claims:
        backend_registration.rename_privateuse1_backend(vendor.key)
    native.activate(
        vendor.key,
        vendor.key,
        1 if vendor.one_device else len(physical),
        chosen.memory,
        vendor.generators,
        chosen.strict,
        vendor.orders_data,
    )
    execution_modes.enable(native, chosen)
    return Simulation(vendor, chosen, native, physical, _module(vendor))


def _load() -> Any:
    return native_build.load(build.library(), _import)


def _import(path: str) -> Any:
    # The path is a descriptor's: it has no suffix by which Python could tell what it is.
    spec = importlib.util.spec_from_file_location(
        build.NAME, path, loader=ExtensionFileLoader(build.NAME, path)
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[build.NAME] = module
    return module


def _module(vendor: SimVendor) -> ModuleType:
    inside_torch = getattr(torch, vendor.key, None)
    if isinstance(inside_torch, ModuleType):
        return inside_torch
    module = ModuleType(f"torch.{vendor.key}")
    module.__path__ = []  # `import torch.npu.random` is a usual line
    return module


def _register(simulation: Simulation) -> None:
    """Fill the vendor's module, then register module, types, collectives and fused operators with torch."""
    vendor = simulation.vendor
    simulation.simulated.update(runtime.exports(simulation))
    for value in simulation.simulated.values():
        # Code that checks whether torch.cuda is torch's own reads where its functions are defined.
        if isinstance(value, FunctionType) and value.__module__.startswith(__name__.partition(".")[0]):
            value.__module__ = vendor.module
    names = surface.load(vendor.surface)
    vendor_module.fill(
        simulation.module, vendor.module, names, simulation.simulated, absent=bool(vendor.packages)
    )
    if not hasattr(torch, vendor.key):
        register: Any = torch._register_device_module
        register(vendor.key, simulation.module)
    device_type.register(simulation)
    collectives.register(simulation)
    ops.register(simulation)
