# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Turns this process's torch into one that has the simulated device."""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
import time
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils import backend_registration

from accel_testkit import surface
from accel_testkit.sim import build, checking, offer, settings, vendors, visible
from accel_testkit.sim.errors import AlreadySimulating
from accel_testkit.sim.settings import Settings
from accel_testkit.sim.vendors import SimVendor


@dataclass
class Simulation:
    """The device that this process simulates."""

    vendor: SimVendor
    settings: Settings
    native: Any
    devices: int
    module: ModuleType
    simulated: dict[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """torch's device type."""
        return self.vendor.key


_current: Simulation | None = None


def current() -> Simulation | None:
    """The simulation of this process, None when there is none."""
    return _current


def activate(key: str) -> Simulation:
    """Simulate a vendor's device in this process. Raises `AlreadySimulating` after another one."""
    global _current
    vendor = vendors.find(key)
    if _current is not None:
        if _current.vendor == vendor:
            return _current
        raise AlreadySimulating(
            what=f"{key} can not be simulated in this process",
            found=f"it already simulates {_current.vendor.key}",
            expected="one kind of device a process",
            do="start another process",
        )
    chosen = settings.read()
    devices = min(visible.count(vendor, chosen.devices, os.environ), vendor.max_devices)
    native = _load()
    if vendor.claims:
        backend_registration.rename_privateuse1_backend(key)
    native.activate(
        key, key, 1 if vendor.one_device else devices, chosen.memory, vendor.generators, chosen.strict
    )
    checking.start(native, chosen)
    _current = Simulation(vendor, chosen, native, devices, _module(vendor))
    _present(_current)
    # PyTorch drops the last task of a device's autograd thread after main has returned, and the interpreter
    # ends under it: "terminate called without an active exception". A moment at exit lets it finish.
    atexit.register(time.sleep, 0.05)
    return _current


def _load() -> Any:
    path = build.library()
    spec = importlib.util.spec_from_file_location(build.NAME, path)
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


def _present(simulation: Simulation) -> None:
    from accel_testkit.sim import collectives, ops, runtime, torch_types

    vendor = simulation.vendor
    simulation.simulated.update(runtime.offer(simulation))
    for value in simulation.simulated.values():
        # Who looks whether torch.cuda is torch's own asks where its functions come from.
        if isinstance(value, FunctionType) and value.__module__.startswith(__name__.partition(".")[0]):
            value.__module__ = vendor.module
    names = surface.load(vendor.surface)
    offer.fill(simulation.module, vendor.module, names, simulation.simulated, absent=bool(vendor.packages))
    if not hasattr(torch, vendor.key):
        register: Any = torch._register_device_module
        register(vendor.key, simulation.module)
    torch_types.present(simulation)
    collectives.register(simulation)
    ops.register(simulation)
