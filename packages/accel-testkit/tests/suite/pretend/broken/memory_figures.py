# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures that contradict one another."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import TOTAL_MEMORY

from broken import answers, breaks

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


@breaks("memory.figures_are_in_order")
class PeakIsBelowThePresent(GOOD_Accelerator):
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return max(super().max_memory_allocated(device_index) - 4096, 0)


@breaks(_PEAKS)
class PeakIsAboveWhatIsReserved(GOOD_Accelerator):
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return super().max_memory_allocated(device_index) + 4096


@breaks(_RESERVED)
class ReservedIsLessThanAllocated(GOOD_Accelerator):
    def memory_reserved(self, device_index: int | None = None) -> int:
        return super().memory_reserved(device_index) - 4096


@breaks(_RESERVED, _PEAKS)
class ReservedPeakIsTooLow(GOOD_Accelerator):
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return super().max_memory_reserved(device_index) - 4096


@breaks("answers.cached_memory_is_available")
class CacheIsNotReserved(GOOD_Accelerator):
    def memory_reserved(self, device_index: int | None = None) -> int:
        return self.memory_allocated(device_index)


@breaks("memory.figures_are_in_order")
class TotalIsWhatIsLeft(GOOD_Accelerator):
    def total_memory(self, device_index: int | None = None) -> int:
        return super().total_memory(device_index) - self.memory_reserved(device_index)


@breaks(_KEYS)
class StatsOfTheReservedAreTheTotal(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return {**super().memory_stats(device_index), "reserved_bytes.all.current": TOTAL_MEMORY}


@breaks(_COUNTERS)
class StatsCountNoTensors(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return {**super().memory_stats(device_index), "allocation.all.current": 7}


@breaks(_COUNTERS)
class StatsCountNothingAsFreed(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return {**super().memory_stats(device_index), "allocated_bytes.all.freed": 0}


@breaks(f"{_HIGHEST}[reset_max_memory_allocated]", f"{_HIGHEST}[reset_peak_memory_stats]")
class PeakIsThatOfTheReserved(GOOD_Accelerator):
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self.max_memory_reserved(device_index)


@breaks(
    _DEVICES,
)
class StatsLeaveOutZeros(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return {key: value for key, value in super().memory_stats(device_index).items() if value}


@breaks(_KEPT)
class StatsOfTheCacheComeWithOne(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        stats = super().memory_stats(device_index)
        if self.memory_reserved(device_index) == self.memory_allocated(device_index):
            del stats["reserved_bytes.all.peak"]
        return stats


@breaks(
    _HELD,
    "memory.available_memory_falls",
    "device_index.index_chooses_the_device[available_memory]",
)
class EverythingIsAvailable(GOOD_Accelerator):
    def available_memory(self, device_index: int | None = None) -> int:
        return self.total_memory(device_index)


for _name in ("max_memory_reserved", "total_memory", "available_memory"):

    def _one_more(self: Any, device_index: int | None = None, name: str = _name) -> int:
        return int(getattr(GOOD_Accelerator, name)(self, device_index)) + 1

    breaks(_BLOCKS, name=f"{_name}_is_one_more")(type(_name, (GOOD_Accelerator,), {_name: _one_more}))
