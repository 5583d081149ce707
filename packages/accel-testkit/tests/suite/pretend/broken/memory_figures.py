# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures that contradict one another."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import TOTAL_MEMORY

from broken import answers, breaks, broken

_RESERVED = "memory.figures_are_in_order"
_PEAKS = "memory.figures_are_in_order"
_KEYS = "memory.statistics_agree_with_the_figures"
_HIGHEST = "memory.peak_is_the_highest_that_was_allocated"
_KEPT = "memory.statistics_agree_with_the_figures"
_DEVICES = "memory.statistics_of_each_device_have_the_same_keys"
_HELD = "memory.what_is_held_is_not_available"
_BLOCKS = "memory.figures_are_sums_of_aligned_blocks"
_COUNTERS = "memory.statistics_are_whole"

answers(
    {"available_memory": TOTAL_MEMORY // 2},
    "memory.available_memory_falls",
    "device_index.index_chooses_the_device[{}]",
    "device_index.index_without_a_device_is_refused[{}]",
)
broken(
    "PeakIsBelowThePresent",
    "memory.figures_are_in_order",
    max_memory_allocated=lambda self, device_index=None: max(
        GOOD_Accelerator.max_memory_allocated(self, device_index) - 4096, 0
    ),
)
broken(
    "PeakIsAboveWhatIsReserved",
    _PEAKS,
    max_memory_allocated=lambda self, device_index=None: (
        GOOD_Accelerator.max_memory_allocated(self, device_index) + 4096
    ),
)
broken(
    "ReservedIsLessThanAllocated",
    _RESERVED,
    memory_reserved=lambda self, device_index=None: (
        GOOD_Accelerator.memory_reserved(self, device_index) - 4096
    ),
)
broken(
    "ReservedPeakIsTooLow",
    _RESERVED,
    _PEAKS,
    max_memory_reserved=lambda self, device_index=None: (
        GOOD_Accelerator.max_memory_reserved(self, device_index) - 4096
    ),
)
broken(
    "CacheIsNotReserved",
    "answers.cached_memory_is_available",
    memory_reserved=lambda self, device_index=None: self.memory_allocated(device_index),
)
broken(
    "TotalIsWhatIsLeft",
    "memory.figures_are_in_order",
    total_memory=lambda self, device_index=None: (
        GOOD_Accelerator.total_memory(self, device_index) - self.memory_reserved(device_index)
    ),
)
broken(
    "StatsOfTheReservedAreTheTotal",
    _KEYS,
    memory_stats=lambda self, device_index=None: {
        **GOOD_Accelerator.memory_stats(self, device_index),
        "reserved_bytes.all.current": TOTAL_MEMORY,
    },
)
broken(
    "StatsCountNoTensors",
    _COUNTERS,
    memory_stats=lambda self, device_index=None: {
        **GOOD_Accelerator.memory_stats(self, device_index),
        "allocation.all.current": 7,
    },
)
broken(
    "StatsCountNothingAsFreed",
    _COUNTERS,
    memory_stats=lambda self, device_index=None: {
        **GOOD_Accelerator.memory_stats(self, device_index),
        "allocated_bytes.all.freed": 0,
    },
)
broken(
    "PeakIsThatOfTheReserved",
    f"{_HIGHEST}[reset_max_memory_allocated] {_HIGHEST}[reset_peak_memory_stats]",
    max_memory_allocated=lambda self, device_index=None: self.max_memory_reserved(device_index),
)
broken(
    "StatsLeaveOutZeros",
    _DEVICES,
    memory_stats=lambda self, device_index=None: {
        key: value for key, value in GOOD_Accelerator.memory_stats(self, device_index).items() if value
    },
)


@breaks(_KEPT)
class StatsOfTheCacheComeWithOne(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        stats = super().memory_stats(device_index)
        if self.memory_reserved(device_index) == self.memory_allocated(device_index):
            del stats["reserved_bytes.all.peak"]
        return stats


broken(
    "EverythingIsAvailable",
    _HELD,
    "memory.available_memory_falls device_index.index_chooses_the_device[available_memory]",
    available_memory=lambda self, device_index=None: self.total_memory(device_index),
)


for _name in ("max_memory_reserved", "total_memory", "available_memory"):

    def _one_more(self: Any, device_index: int | None = None, name: str = _name) -> int:
        return int(getattr(GOOD_Accelerator, name)(self, device_index)) + 1

    breaks(_BLOCKS, name=f"{_name}_is_one_more")(type(_name, (GOOD_Accelerator,), {_name: _one_more}))
