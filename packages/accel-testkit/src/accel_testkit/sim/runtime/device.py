# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: how many, which one, what they are, and lazy initialization."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from accel_testkit.sim.simulation import Simulation


def index_of(device: Any, *, default: int | None = None) -> int:
    """Return the index of a device given as an int, a string, a torch.device or None."""
    if isinstance(device, int) and not isinstance(device, bool):
        index: int | None = device
    elif device is None:
        index = None
    else:
        index = torch.device(device).index
    if index is None or index < 0:
        return torch.accelerator.current_device_index() if default is None else default
    return index


class Lazy:
    """Initialization at first use, and the calls that wait for it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.done = False
        self.waiting: list[Callable[[], Any]] = []

    def init(self) -> None:
        """Initialize the device; the first call runs the queued calls."""
        if self.done:
            return
        self.done = True
        module: Any = self.simulation.module
        count = self.simulation.vendor.generators or self.simulation.devices
        generators = tuple(self.simulation.native.default_generator(i) for i in range(count))
        places: tuple[Any, ...] = (module, getattr(module, "random", None))
        for place in places:
            if hasattr(place, "default_generators"):
                place.default_generators = generators
        if hasattr(module, "_initialized"):
            module._initialized = True
        while self.waiting:
            self.waiting.pop(0)()

    def call(self, callable: Callable[[], Any], **kwargs: Any) -> None:
        """Call now, or when the device is initialized."""
        if self.done:
            callable()
        else:
            self.waiting.append(callable)


class _Scope:
    """A device that is current inside a `with`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.before = -1

    def __enter__(self) -> None:
        self.before = torch.accelerator.current_device_index()
        if self.index >= 0:
            torch.accelerator.set_device_index(self.index)

    def __exit__(self, *_error: object) -> None:
        torch.accelerator.set_device_index(self.before)


class device(_Scope):
    """The context manager of the vendor's module."""

    def __init__(self, device: Any) -> None:
        super().__init__(index_of(device, default=-1))


class device_of(_Scope):
    """The device of a tensor, current inside a `with`; nothing for a host tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type != "cpu" else -1)


class Properties(SimpleNamespace):
    """The properties of a device."""


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    lazy = Lazy(simulation)
    return {
        **_counting(simulation),
        **_about(simulation),
        "device": device,
        "device_of": device_of,
        "init": lazy.init,
        "is_initialized": lambda: lazy.done,
        "_initialized": False,
        "_is_in_bad_fork": lambda: False,
        "_lazy_init": lazy.init,
        "_lazy_call": lazy.call,
        "ipc_collect": lambda: None,
    }


def _counting(simulation: Simulation) -> dict[str, Any]:
    def set_device(device: Any) -> None:
        index = index_of(device, default=-1)
        if index >= 0:
            torch.accelerator.set_device_index(index)

    def synchronize(device: Any = None) -> None:
        torch.accelerator.synchronize(index_of(device))

    def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        if device is None and not optional:
            raise ValueError(f"expected a device of type {simulation.type}, found None")
        if (
            allow_cpu
            and not isinstance(device, int)
            and device is not None
            and torch.device(device).type == "cpu"
        ):
            return -1
        return index_of(device)

    return {
        "is_available": lambda: simulation.devices > 0,
        "device_count": lambda: simulation.devices,
        "current_device": torch.accelerator.current_device_index,
        "set_device": set_device,
        "synchronize": synchronize,
        "_get_device_index": _get_device_index,
        "can_device_access_peer": lambda device, peer: index_of(device) != index_of(peer),
        "utilization": lambda device=None: 0,
    }


def _about(simulation: Simulation) -> dict[str, Any]:
    vendor = simulation.vendor

    def get_device_name(device: Any = None) -> str:
        index_of(device)
        return vendor.device_name

    def get_device_properties(device: Any = None) -> Properties:
        index_of(device)
        return Properties(
            name=vendor.device_name, total_memory=simulation.settings.memory, **vendor.properties
        )

    def get_device_capability(device: Any = None) -> Any:
        index_of(device)
        return vendor.properties["major"], vendor.properties["minor"]

    return {
        "get_device_name": get_device_name,
        "get_device_properties": get_device_properties,
        "get_device_capability": get_device_capability,
    }
