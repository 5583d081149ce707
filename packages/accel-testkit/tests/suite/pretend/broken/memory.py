# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory: figures that are missing, stale, or another device's."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import TOTAL_MEMORY

from accel_core.vendor import Support, Trait
from broken import answers, breaks, broken

_FIGURE = "answers.answer_has_its_type[{}]"
_BY_INDEX = "memory.each_device_has_its_figures[{}]"
_OLD = "memory.figures_are_in_order"
_STATS = "memory.statistics_agree_with_the_figures"
_TOTAL = "memory.figures_are_in_order"
_RESET = "memory.peak_can_be_reset"
_RESET_PEAKS = (
    f"{_RESET}[reset_max_memory_allocated-max_memory_allocated]",
    f"{_RESET}[reset_peak_memory_stats-max_memory_allocated]",
)
_RESET_CACHED = f"{_RESET}[reset_max_memory_cached-max_memory_cached]"
_RESET_RESERVED = f"{_RESET}[reset_peak_memory_stats-max_memory_reserved]"

answers(
    {"memory_allocated": None}, _FIGURE, _BY_INDEX, "memory.figure_follows_tensors[memory_allocated]", _STATS
)
answers({"memory_allocated": 0}, _BY_INDEX, "memory.figure_follows_tensors[memory_allocated]", _STATS)
answers(
    {"max_memory_allocated": None},
    _FIGURE,
    _BY_INDEX,
    *_RESET_PEAKS,
    "device_index.reset_reaches_one_device memory.figure_follows_tensors[max_memory_allocated]",
    _STATS,
)
# The old names are written in terms of the new ones.
answers(
    {"memory_reserved": None},
    _FIGURE,
    _FIGURE.format("memory_cached"),
    _BY_INDEX,
    _OLD,
    "memory.figure_follows_tensors[memory_reserved]",
)
answers({"memory_reserved": 0}, _BY_INDEX, "memory.figure_follows_tensors[memory_reserved]")
answers(
    {"max_memory_reserved": None},
    _FIGURE,
    _FIGURE.format("max_memory_cached"),
    _OLD,
    _RESET_CACHED,
    _RESET_RESERVED,
    "memory.figure_follows_tensors[max_memory_reserved]",
)
answers({"memory_cached": None}, _FIGURE, _OLD)
answers({"max_memory_cached": None}, _FIGURE, _OLD, _RESET_CACHED)
answers({"total_memory": None, "available_memory": None}, _FIGURE, _TOTAL)
answers({"total_memory": 0, "available_memory": TOTAL_MEMORY * 2}, _TOTAL)


@breaks(
    "memory.peak_can_be_reset[reset_max_memory_allocated-max_memory_allocated]",
    "memory.peak_can_be_reset[reset_peak_memory_stats-max_memory_allocated]",
    "memory.figure_follows_tensors[max_memory_allocated]",
)
class PeakIsThePresent(GOOD_Accelerator):
    """As it was on mps."""

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self.memory_allocated(device_index)


broken(
    "ReservedPeakIsThePresent",
    "memory.peak_can_be_reset[reset_max_memory_cached-max_memory_cached]",
    "memory.peak_can_be_reset[reset_peak_memory_stats-max_memory_reserved]",
    "memory.figure_follows_tensors[max_memory_reserved]",
    max_memory_reserved=lambda self, device_index=None: self.memory_reserved(device_index),
)
broken(
    "PeaksAreNeverReset",
    "memory.each_device_has_its_figures[max_memory_allocated] memory.peak_can_be_reset",
    "memory.figure_follows_tensors[max_memory_allocated]",
    "memory.figure_follows_tensors[max_memory_reserved]",
    reset_peak_memory_stats=lambda self, device_index=None: None,
)
# As it was on xpu.
broken(
    "OldResetIsMissing",
    "memory.peak_can_be_reset[reset_max_memory_allocated-max_memory_allocated]",
    reset_max_memory_allocated=lambda self, device_index=None: self.device_module.reset_max_memory_allocated(
        device_index
    ),
)
broken(
    "OldResetOfTheCacheIsEmpty",
    "memory.peak_can_be_reset[reset_max_memory_cached-max_memory_cached]",
    reset_max_memory_cached=lambda self, device_index=None: None,
)
broken(
    "OldNameIsAnotherFigure", "memory.figures_are_in_order", memory_cached=lambda self, device_index=None: 0
)
broken(
    "OldNameIsWhatIsAllocated",
    "memory.figures_are_in_order",
    memory_cached=lambda self, device_index=None: self.memory_allocated(device_index),
)


@breaks("memory.asking_leaves_the_cache")
class AskingEmptiesTheCache(GOOD_Accelerator):
    def memory_allocated(self, device_index: int | None = None) -> int:
        self.empty_cache()
        return super().memory_allocated(device_index)


broken(
    "CacheIsKept",
    "memory.each_device_has_its_figures[memory_reserved]",
    "memory.peak_can_be_reset[reset_max_memory_cached-max_memory_cached]",
    "memory.peak_can_be_reset[reset_peak_memory_stats-max_memory_reserved]",
    "memory.figure_follows_tensors[memory_reserved] memory.figure_follows_tensors[max_memory_reserved]",
    empty_cache=lambda self: None,
)
# As it was on hpu.
broken(
    "StatsHaveOtherKeys",
    "memory.statistics_agree_with_the_figures",
    memory_stats=lambda self, device_index=None: {
        "Limit": TOTAL_MEMORY,
        "InUse": self.memory_allocated(device_index),
    },
)


@breaks("memory.statistics_agree_with_the_figures")
class StatsAreStale(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._stats = super().memory_stats()

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return self._stats


def _of_device_0(name: str) -> Any:
    def figure(self: GOOD_Accelerator, device_index: int | None = None) -> int:
        return getattr(self.device_module, name)(0)  # type: ignore[no-any-return]

    return figure


for _name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
    breaks(f"memory.each_device_has_its_figures[{_name}]", name=f"{_name}_ignores_the_index")(
        type(f"{_name}_ignores_the_index", (GOOD_Accelerator,), {_name: _of_device_0(_name)})
    )


@breaks("device_index.reset_reaches_one_device memory.peak_of_another_device_stays")
class ResetReachesAll(GOOD_Accelerator):
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        for index in range(self.device_count()):
            super().reset_peak_memory_stats(index)


@breaks("memory.asking_leaves_the_cache")
class AskingForTheReservedEmptiesTheCache(GOOD_Accelerator):
    def memory_reserved(self, device_index: int | None = None) -> int:
        self.empty_cache()
        return super().memory_reserved(device_index)


# --- memory figures that contradict one another

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


# --- what the checks of memory's statistics notice: figures of one group, or of one meaning, that do not agree


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
