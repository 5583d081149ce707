# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory's statistics: the runtime's own, torch's names in whole groups whose figures agree, and deprecated names."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.holds import Holds

pytestmark = pytest.mark.tier("device")

#: The figures of torch's allocator; one behind the first is not there without the others.
_GROUPS = {
    "allocated_bytes.all": ("current", "peak"),
    "reserved_bytes.all": ("current", "peak"),
    "allocation.all": ("current", "allocated", "freed"),
}


def test_statistics_are_whole(accelerator: DeepSpeedAccelerator, device: torch.device) -> None:
    """`memory_stats()` has all that the runtime's has, and of each group of torch's names all figures, that agree."""
    kept = [torch.ones(1 << 16, device=device) for _ in range(3)]
    del kept[1]
    module, holds = getattr(torch, accelerator.device_name(), None), Holds()
    told = getattr(module, "memory_stats", dict)
    theirs: dict[str, Any] = told()
    stats = accelerator.memory_stats()
    lacks = sorted(set(theirs) - set(stats))
    holds[f"what the runtime tells: {', '.join(lacks)}"] = not lacks
    for group, parts in _GROUPS.items():
        found: dict[str, Any] = {part: stats.get(f"{group}.{part}") for part in parts}
        there = any(found[part] is not None for part in parts[1:])
        holds[f"all of {group}: {found}"] = not there or None not in found.values()
        if there and None not in found.values() and "freed" in found:
            holds[f"{group}: {found}"] = found["current"] == found["allocated"] - found["freed"]
    holds.expect("memory_stats()", "return the runtime's statistics, and torch's names for what they tell")


#: The host's figures move with other memory of the process.
_NOISE = 8 << 20
_DEPRECATED = {"memory_cached": "memory_reserved", "max_memory_cached": "max_memory_reserved"}


def test_deprecated_names_have_the_same_figures(accelerator: DeepSpeedAccelerator) -> None:
    """`memory_cached` is `memory_reserved`, and `max_memory_cached` its peak, also where a cache holds what is free."""
    holds, place = Holds(), accelerator.device(accelerator.current_device())
    for size in (64 << 20, 0):
        block = torch.ones(size, dtype=torch.uint8, device=place)
        del block  # an allocator may keep it
        accelerator.reset_peak_memory_stats()
        for name, meant in _DEPRECATED.items():
            found = [getattr(accelerator, each)() for each in (name, meant)]
            holds[f"{name}() and {meant}(): {found}"] = abs(found[0] - found[1]) <= _NOISE
        accelerator.empty_cache()
    holds.expect("a deprecated name", "answer as under the present name")
