# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory's statistics: the runtime's own, and torch's names in whole groups whose figures agree."""

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
    reported = getattr(module, "memory_stats", dict)
    theirs: dict[str, Any] = reported()
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
