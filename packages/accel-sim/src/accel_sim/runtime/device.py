# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: how many, which one, what they are."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch

from accel_sim.runtime.indices import Indices
from accel_sim.simulation import Simulation


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
