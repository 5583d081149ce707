# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: how many, which one, what they are, and how device arguments are read."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from accel_sim.simulation import Simulation

#: `set_device` and some others do without an index there: torch_npu, torch_mlu and Habana's read None as the current.
_OPTIONAL = ("npu", "mlu", "hpu")


class Indices:
    """How one vendor's module reads device arguments: ints, strings, torch.device, its own `device`, None."""

    def __init__(self, simulation: Simulation) -> None:
        self.type = simulation.type
        self.module: Any = simulation.module
        self.devices = simulation.devices
        self.optional = self.type in _OPTIONAL

    def index(self, device: Any, optional: bool = True, allow_cpu: bool = False) -> int:
        """Return the index; that of the current device for None, or a device without one, if `optional`.

        Raises ValueError for another type's device, and for none if not `optional`.
        """
        if isinstance(device, int):
            return device
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            self._check_type(device, allow_cpu)
            if device.type == "cpu":
                return -1
            index: int | None = device.index
        else:
            index = getattr(device, "idx", None)  # of the module's own `device`
        if index is not None:
            return index
        if not optional:
            raise ValueError(
                f"Expected a torch.device with a specified index or an integer, but got:{device}"
            )
        return torch.accelerator.current_device_index()

    def to_set(self, device: Any) -> int:
        """Return the index that `set_device` gets; a negative one has no effect."""
        return self.index(device, self.optional)

    def described(self, device: Any, word: str = "device") -> int:
        """Return the index of a device that is described: its name, properties, peers. Raises AssertionError."""
        index = self.index(device)
        if self._has(index):
            return index
        if self.type == "xpu":
            self._raise_range(index)
        raise AssertionError(f"Invalid {word} id")

    def counted(self, device: Any) -> int:
        """Return the index of a device whose memory is counted. Raises RuntimeError."""
        index = self.index(device)
        if not self._has(index):
            raise RuntimeError(f"Invalid device argument {index}: did you call init?")
        return index

    def queued(self, device: Any) -> int:
        """Return the index of a device whose stream is used; a negative one is the current. Raises RuntimeError."""
        index = self.index(device)
        if index < 0:
            return torch.accelerator.current_device_index()
        if not self._has(index):
            self._raise_range(index)
        return index

    def drawn(self, device: Any) -> int:
        """Return the index of a device whose generator is asked for. Raises IndexError.

        torch_npu refuses other types; in the others the type does not matter, and mps has one generator.
        """
        if self.type == "mps":
            return 0
        if isinstance(device, int):
            device = torch.device(self.type, device)
        elif isinstance(device, str):
            device = torch.device(device)
        if self.type == "npu" and device is not None and device.type != "npu":
            raise ValueError(f"{device.type} doesn't match the current accelerator npu.")
        index = self.index(None) if device is None or device.index is None else int(device.index)
        if not self._has(index):
            raise IndexError("tuple index out of range")
        return index

    def monitored(self, device: Any) -> int:
        """Return the index of a device whose load is asked for. Raises the error of the vendor's management library."""
        index = self.index(device)
        if self._has(index):
            return index
        if self.type == "cuda":
            raise RuntimeError(
                f"device {index} is not visible (CUDA_VISIBLE_DEVICES={list(range(self.devices))})"
            )
        if self.type == "xpu":
            raise RuntimeError(f"The device {index} is out of range for Level Zero Sysman.")
        raise AssertionError("Invalid device id")

    def _has(self, index: int) -> bool:
        return 0 <= index < self.devices

    def _check_type(self, device: torch.device, allow_cpu: bool) -> None:
        if device.type == self.type or (allow_cpu and device.type == "cpu"):
            return
        wanted = f"{self.type} or cpu" if allow_cpu else self.type
        raise ValueError(f"Expected a {wanted} device, but got: {device}")

    def _raise_range(self, index: int) -> NoReturn:
        if self.type == "xpu":
            raise RuntimeError(
                f"The device index is out of range. It must be in [0, {self.devices}), but got {index}."
            )
        raise RuntimeError(f"Device index value {index} is out of index range [0, {self.devices})")


class _Scope:
    """A device that is current inside a `with`; none for a negative index."""

    idx: int

    def __enter__(self) -> None:
        self.before = torch.accelerator.current_device_index()
        if self.idx >= 0:
            torch.accelerator.set_device_index(self.idx)

    def __exit__(self, *_error: object) -> None:
        torch.accelerator.set_device_index(self.before)


class Properties(SimpleNamespace):
    """The properties of a device."""


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    indices = Indices(simulation)
    scopes = _scopes(simulation, indices)
    return {
        **scopes,
        **_counting(simulation, indices, scopes["device"]),
        **_about(simulation, indices),
        "ipc_collect": lambda: None,
    }


def _scopes(simulation: Simulation, indices: Indices) -> dict[str, Any]:
    class device(_Scope):
        """The context manager of the vendor's module."""

        def __init__(self, device: Any) -> None:
            self.idx = indices.index(device)

    class device_of(device):
        """The device of a tensor, current inside a `with`; nothing for a tensor of another type."""

        def __init__(self, obj: Any) -> None:
            self.idx = obj.device.index if obj.device.type == simulation.type else -1

    return {"device": device, "device_of": device_of}


def _counting(simulation: Simulation, indices: Indices, scope: Any) -> dict[str, Any]:
    def is_available() -> bool:
        if simulation.type == "cuda" and os.getenv("PYTORCH_NVML_BASED_CUDA_CHECK") != "1":
            simulation.native.poison_fork()  # torch asks the driver, which then exists
        return simulation.devices > 0

    def set_device(device: Any) -> None:
        index = indices.to_set(device)
        if index >= 0:
            torch.accelerator.set_device_index(index)

    def synchronize(device: Any = None) -> None:
        if simulation.type == "xpu":  # it does not make the device current
            torch.accelerator.synchronize(indices.queued(device))
            return
        with scope(device):
            torch.accelerator.synchronize()

    def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        return indices.index(device, optional, allow_cpu)

    return {
        "is_available": is_available,
        "device_count": lambda: simulation.devices,
        "current_device": lambda: torch.accelerator.current_device_index(),
        "set_device": set_device,
        "synchronize": synchronize,
        "_get_device_index": _get_device_index,
    }


def _about(simulation: Simulation, indices: Indices) -> dict[str, Any]:
    vendor = simulation.vendor

    def get_device_name(device: Any = None) -> str:
        indices.described(device)
        return vendor.device_name

    def get_device_properties(device: Any = None) -> Properties:
        indices.described(device)
        return Properties(
            name=vendor.device_name, total_memory=simulation.settings.memory, **vendor.properties
        )

    def get_device_capability(device: Any = None) -> Any:
        indices.described(device)
        return vendor.properties["major"], vendor.properties["minor"]

    def can_device_access_peer(device: Any, peer_device: Any) -> bool:
        return indices.described(device) != indices.described(peer_device, "peer device")

    def utilization(device: Any = None) -> int:
        indices.monitored(device)
        return 0

    return {
        "get_device_name": get_device_name,
        "get_device_properties": get_device_properties,
        "get_device_capability": get_device_capability,
        "can_device_access_peer": can_device_access_peer,
        "utilization": utilization,
    }
