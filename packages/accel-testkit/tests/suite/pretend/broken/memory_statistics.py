# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of memory's statistics notice: figures of one group, or of one meaning, that do not agree."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator

from accel_core.vendor import Support, Trait
from broken import breaks, broken


@breaks("memory.statistics_are_whole")
class FreedBlocksAreNotCounted(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        counts = {"current": 3, "allocated": 5, "freed": 1}
        return {
            **super().memory_stats(device_index),
            **{f"allocation.all.{name}": count for name, count in counts.items()},
        }


broken(
    "CachedPeakIsThatOfTensors",
    "memory.figures_are_in_order",
    max_memory_cached=lambda self, device_index=None: self.max_memory_allocated(device_index),
)


@breaks(
    "memory.statistics_agree_with_the_figures memory.statistics_are_whole",
    "traits.declared_feature_is_missing[reserved_memory]",
)
class StatsAreAPeak(GOOD_Accelerator):
    """Of an allocator that is said to reserve nothing: the keys of tensors are still looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.traits = {**self.traits, "reserved_memory": Trait(Support.UNSUPPORTED, "nothing is reserved")}

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        peak = self.max_memory_allocated(device_index)
        return {**super().memory_stats(device_index), "allocated_bytes.all.current": peak}
