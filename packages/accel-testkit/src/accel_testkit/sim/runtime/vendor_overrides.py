# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Functions of one vendor's module that differ from the others, one function a vendor."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch

from accel_testkit.sim.runtime import memory
from accel_testkit.sim.runtime.device import index_of
from accel_testkit.sim.simulation import Simulation


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names whose behaviour is the vendor's own; they replace those of the other modules."""
    override = {"npu": _npu, "hpu": _hpu, "xpu": _xpu, "mps": _mps}.get(simulation.type)
    ranges = {"range_push": _nothing, "range_pop": _nothing, "mark": _nothing}
    emulation = {"is_bf16_supported": lambda including_emulation=True: simulation.devices > 0}
    asked = emulation if simulation.type in ("npu", "xpu", "cuda") else {}
    return {**ranges, **asked, **(override(simulation) if override else {})}


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """Do nothing: there is no profiler to mark ranges for."""


def _npu(simulation: Simulation) -> dict[str, Any]:
    def get_device_capability(device: Any = None) -> tuple[int, ...] | None:
        text = os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", "")
        return tuple(int(part) for part in text.split(".")) if text else None

    registry = SimpleNamespace(
        npuHostRegister=lambda address, size, _flags=0: simulation.native.register_host(address, size),
        npuHostUnregister=lambda address: simulation.native.unregister_host(address),
    )
    return {"get_device_capability": get_device_capability, "npurt": lambda: registry}


def _hpu(simulation: Simulation) -> dict[str, Any]:
    """Return hpu's names: one device a process, its own memory statistics, text where others have objects."""
    lazy = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"

    def only(device: Any) -> int:
        index = index_of(device, default=0)
        if index != 0:
            raise RuntimeError(f"hpu is one device a process; found index {index}, expected 0 or none")
        return index

    def set_device(device: Any) -> None:
        index = index_of(device, default=0)
        if not 0 <= index < simulation.devices:
            raise RuntimeError(f"Device id {index} is not in the range of the {simulation.devices} devices")

    def get_rng_state(device: Any = "hpu") -> torch.Tensor:
        state: torch.Tensor = simulation.native.default_generator(only(device)).get_state()
        return state

    def set_rng_state(new_state: torch.Tensor, device: Any = "hpu") -> None:
        simulation.native.default_generator(only(device)).set_state(new_state)

    return {
        **_hpu_memory(simulation, only),
        "synchronize": lambda: torch.accelerator.synchronize(),
        "set_device": set_device,
        "get_rng_state": get_rng_state,
        "set_rng_state": set_rng_state,
        "get_device_properties": lambda device=None: (
            f"(sramBaseAddress=0x0, device={only(device)}, simulated)"
        ),
        "get_device_capability": lambda device=None: "1.19.0",
        "get_device_type": lambda: 5,
        "memory_summary": lambda device=None: memory.memory_summary(only(device)),
        "get_arch_list": list,
        "is_lazy": lambda: lazy,
        "is_lazy_mode": lambda: lazy,
    }


def _hpu_memory(simulation: Simulation, only: Any) -> dict[str, Any]:
    def memory_stats(device: Any = None) -> dict[str, int]:
        stats = memory.memory_stats(only(device))
        used, most = stats.get("allocated_bytes.all.current", 0), stats.get("allocated_bytes.all.peak", 0)
        made, freed = stats.get("allocation.all.allocated", 0), stats.get("allocation.all.freed", 0)
        return {
            "Limit": simulation.settings.memory, "InUse": used, "MaxInUse": most, "NumAllocs": made,
            "NumFrees": freed, "ActiveAllocs": made - freed, "MaxAllocSize": most, "TotalSystemAllocs": made,
            "TotalSystemFrees": freed, "TotalActiveAllocs": made - freed,
        }  # fmt: skip

    def figure(key: str) -> Any:
        return lambda device=None: memory_stats(device)[key]

    return {
        "memory_stats": memory_stats,
        "memory_allocated": figure("InUse"),
        "max_memory_allocated": figure("MaxInUse"),
        "memory_reserved": figure("Limit"),
        "max_memory_reserved": figure("Limit"),
        "memory_cached": figure("Limit"),
        "max_memory_cached": figure("Limit"),
        "mem_get_info": lambda device=None: (
            simulation.settings.memory - memory_stats(device)["InUse"], simulation.settings.memory),
    }  # fmt: skip


def _xpu(simulation: Simulation) -> dict[str, Any]:
    def get_device_capability(device: Any = None) -> dict[str, Any]:
        index_of(device)
        return dict(simulation.vendor.properties)

    return {"get_device_capability": get_device_capability}


def _mps(simulation: Simulation) -> dict[str, Any]:
    def used() -> int:
        return int(torch.accelerator.memory_allocated())

    return {
        "current_allocated_memory": used,
        "driver_allocated_memory": lambda: int(torch.accelerator.memory_reserved()),
        "recommended_max_memory": lambda: simulation.settings.memory,
        "set_per_process_memory_fraction": _nothing,
    }
