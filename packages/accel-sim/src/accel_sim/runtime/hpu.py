# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""hpu's functions: one device a process, its own memory statistics, text where others have objects."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from accel_sim.runtime import memory
from accel_sim.runtime.device import Indices
from accel_sim.simulation import Simulation


class _Only:
    """The one device that this process may use, whichever index was set."""

    def __init__(self, simulation: Simulation) -> None:
        self.indices = Indices(simulation)
        self.devices = simulation.devices
        self.chosen = 0

    def index(self, device: Any) -> int:
        """Return 0. Raises RuntimeError for the index of another device, AssertionError for one that is none."""
        index = self.indices.described(device)
        if index != 0:
            raise RuntimeError(f"hpu is one device a process; found index {index}, expected 0 or none")
        return index

    def drawn(self, device: Any, function: str) -> int:
        """Return 0 for the device of the generator. Raises RuntimeError for any other."""
        if self.indices.index(device) != 0:
            raise RuntimeError(f"hpu {function} supports only device 0")
        return 0

    def set(self, device: Any) -> None:
        """Choose a device. Raises AssertionError for one that there is none of."""
        index = self.indices.to_set(device)
        there = list(range(self.devices))
        if index not in there:
            raise AssertionError(f"Trying to open device with idx={index} when only {there} are available")
        self.chosen = index


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return hpu's own names; they replace those of the other modules."""
    only = _Only(simulation)
    return {
        **_memory(simulation, only),
        **_random(simulation, only),
        **_about(simulation, only),
        "device": _scope(only),
        "set_device": only.set,
        "synchronize": lambda: torch.accelerator.synchronize(),
    }


def _scope(only: _Only) -> type:
    class device:
        """The context manager of the module: it accepts the device of this process, and has no effect."""

        def __init__(self, device: Any) -> None:
            self.idx = only.indices.index(device)
            if self.idx not in (0, only.chosen):
                raise AssertionError(
                    f"Requested device_id={self.idx} is different from env_device_id={only.chosen}"
                )

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_error: object) -> None:
            pass

    return device


def _about(simulation: Simulation, only: _Only) -> dict[str, Any]:
    lazy = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"

    def get_device_properties(device: Any = None) -> str:
        return f"(sramBaseAddress=0x0, device={only.indices.described(device)}, simulated)"

    def get_device_capability(device: Any = None) -> str:
        only.indices.described(device)
        return simulation.vendor.distribution[1]

    def utilization(device: Any = None) -> int:
        only.indices.described(device)
        return 0

    return {
        "get_device_properties": get_device_properties,
        "get_device_capability": get_device_capability,
        "utilization": utilization,
        "get_device_type": lambda: 5,
        "get_arch_list": list,
        "is_lazy": lambda: lazy,
        "is_lazy_mode": lambda: lazy,
    }


def _random(simulation: Simulation, only: _Only) -> dict[str, Any]:
    def get_rng_state(device: Any = "hpu") -> torch.Tensor:
        index = only.drawn(device, "get_rng_state")
        state: torch.Tensor = simulation.native.default_generator(index).get_state()
        return state

    def set_rng_state(new_state: torch.Tensor, device: Any = "hpu") -> None:
        index = only.drawn(device, "set_rng_state")
        simulation.native.default_generator(index).set_state(new_state)

    return {"get_rng_state": get_rng_state, "set_rng_state": set_rng_state}


def _memory(simulation: Simulation, only: _Only) -> dict[str, Any]:
    common = memory.statistics(simulation)
    counted: Callable[[], dict[str, int]] = common["memory_stats"]
    limit = simulation.settings.memory

    def memory_stats(device: Any = None) -> dict[str, int]:
        only.index(device)
        stats = counted()
        used, most = stats.get("allocated_bytes.all.current", 0), stats.get("allocated_bytes.all.peak", 0)
        made, freed = stats.get("allocation.all.allocated", 0), stats.get("allocation.all.freed", 0)
        return {
            "Limit": limit, "InUse": used, "MaxInUse": most, "NumAllocs": made,
            "NumFrees": freed, "ActiveAllocs": made - freed, "MaxAllocSize": most, "TotalSystemAllocs": made,
            "TotalSystemFrees": freed, "TotalActiveAllocs": made - freed,
        }  # fmt: skip

    def figure(key: str) -> Any:
        return lambda device=None: memory_stats(device)[key]

    def memory_summary(device: Any = None) -> str:
        return "\n".join(f"{name}: {value}" for name, value in memory_stats(device).items())

    def reset(name: str) -> Any:
        return lambda device=None: common[name](only.index(device))

    resets = ("reset_peak_memory_stats", "reset_accumulated_memory_stats")
    return {
        **{name: reset(name) for name in resets},
        "memory_stats": memory_stats,
        "memory_summary": memory_summary,
        "memory_allocated": figure("InUse"),
        "memory_usage": figure("InUse"),
        "max_memory_allocated": figure("MaxInUse"),
        **dict.fromkeys(
            ("memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached"), figure("Limit")
        ),
        "mem_get_info": lambda device=None: (limit - memory_stats(device)["InUse"], limit),
    }
