# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures: torch's own statistics of the simulated allocator."""

from __future__ import annotations

from typing import Any

import torch

from accel_testkit.sim.runtime.device import index_of
from accel_testkit.sim.simulation import Simulation

accelerator = torch.accelerator


def _figure(key: str) -> Any:
    def figure(device: Any = None) -> int:
        return int(accelerator.memory_stats(index_of(device)).get(key, 0))

    return figure


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Return torch's dictionary of statistics."""
    return dict(accelerator.memory_stats(index_of(device)))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peaks to the present figures."""
    accelerator.reset_peak_memory_stats(index_of(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return free and total bytes."""
    free, total = accelerator.get_memory_info(index_of(device))
    return free, total


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Return the statistics as lines of text."""
    stats = memory_stats(device)
    return "\n".join(f"{name}: {stats[name]}" for name in sorted(stats))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Reset the accumulated figures to zero."""
    accelerator.reset_accumulated_memory_stats(index_of(device))


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    allocated, most_allocated = "allocated_bytes.all.current", "allocated_bytes.all.peak"
    reserved, most_reserved = "reserved_bytes.all.current", "reserved_bytes.all.peak"
    return {
        "memory_allocated": _figure(allocated),
        "max_memory_allocated": _figure(most_allocated),
        "memory_reserved": _figure(reserved),
        "max_memory_reserved": _figure(most_reserved),
        "memory_cached": _figure(reserved),
        "max_memory_cached": _figure(most_reserved),
        "memory_stats": memory_stats,
        "memory_summary": memory_summary,
        "mem_get_info": mem_get_info,
        "empty_cache": lambda: accelerator.empty_cache(),
        "reset_peak_memory_stats": reset_peak_memory_stats,
        "reset_max_memory_allocated": reset_peak_memory_stats,
        "reset_max_memory_cached": reset_peak_memory_stats,
        "reset_accumulated_memory_stats": reset_accumulated_memory_stats,
    }
