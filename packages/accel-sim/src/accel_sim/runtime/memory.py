# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures: torch's own statistics of the simulated allocator."""

from __future__ import annotations

from typing import Any

import torch

from accel_sim.runtime.device import Indices
from accel_sim.simulation import Simulation

accelerator = torch.accelerator


#: Modules whose statistics are empty until the device is initialized.
_EMPTY_FIRST = ("cuda", "xpu", "npu")


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    stats = statistics(simulation)
    figures = _figures(stats["memory_stats"])
    reset = stats["reset_peak_memory_stats"]
    return {
        **stats,
        **figures,
        **_fractions(simulation),
        "memory_cached": figures["memory_reserved"],
        "max_memory_cached": figures["max_memory_reserved"],
        "empty_cache": lambda: accelerator.empty_cache(),
        "reset_max_memory_allocated": reset,
        "reset_max_memory_cached": reset,
    }


def statistics(simulation: Simulation) -> dict[str, Any]:
    """Return the functions that read or reset the allocator's statistics."""
    indices, module = Indices(simulation), simulation.module

    def memory_stats(device: Any = None) -> dict[str, Any]:
        if simulation.type in _EMPTY_FIRST and not module.is_initialized():
            return {}
        return dict(accelerator.memory_stats(indices.counted(device)))

    def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
        stats = memory_stats(device)
        return "\n".join(f"{name}: {stats[name]}" for name in sorted(stats))

    def mem_get_info(device: Any = None) -> tuple[int, int]:
        index = indices.described(device) if simulation.type == "npu" else indices.index(device)
        free, total = accelerator.get_memory_info(index)
        return free, total

    def reset_peak_memory_stats(device: Any = None) -> None:
        accelerator.reset_peak_memory_stats(indices.counted(device))

    def reset_accumulated_memory_stats(device: Any = None) -> None:
        accelerator.reset_accumulated_memory_stats(indices.counted(device))

    return {
        "memory_stats": memory_stats,
        "memory_stats_as_nested_dict": lambda device=None: _nested(memory_stats(device)),
        "memory_summary": memory_summary,
        "mem_get_info": mem_get_info,
        "reset_peak_memory_stats": reset_peak_memory_stats,
        "reset_accumulated_memory_stats": reset_accumulated_memory_stats,
    }


def _nested(stats: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in stats.items():
        *outer, last = key.split(".")
        place = result
        for word in outer:
            place = place.setdefault(word, {})
        place[last] = value
    return result


def _fractions(simulation: Simulation) -> dict[str, Any]:
    indices, native = Indices(simulation), simulation.native

    def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
        index = indices.counted(device)
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        native.set_memory_fraction(index, fraction)

    def get_per_process_memory_fraction(device: Any = None) -> float:
        return float(native.memory_fraction(indices.counted(device)))

    return {
        "set_per_process_memory_fraction": set_per_process_memory_fraction,
        "get_per_process_memory_fraction": get_per_process_memory_fraction,
    }


def _figures(memory_stats: Any) -> dict[str, Any]:
    def figure(key: str) -> Any:
        return lambda device=None: int(memory_stats(device).get(key, 0))

    return {
        "memory_allocated": figure("allocated_bytes.all.current"),
        "max_memory_allocated": figure("allocated_bytes.all.peak"),
        "memory_reserved": figure("reserved_bytes.all.current"),
        "max_memory_reserved": figure("reserved_bytes.all.peak"),
    }
