# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory: figures that are missing, stale, or another device's."""

from typing import Any

from accel_good.accelerator import GOOD_Accelerator

from broken import answers, breaks, broken

_FIGURE = "answers.answer_has_its_type[{}]"
_OLD = "memory.figures_are_in_order"
_RESET = "memory.peak_can_be_reset"
_RESET_CACHED = f"{_RESET}[reset_max_memory_cached-max_memory_cached]"

answers({"max_memory_cached": None}, _FIGURE, _OLD, _RESET_CACHED)


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
    "PeaksAreNeverReset",
    "memory.each_device_has_its_figures[max_memory_allocated] memory.peak_can_be_reset",
    "memory.figure_follows_tensors[max_memory_allocated]",
    "memory.figure_follows_tensors[max_memory_reserved]",
    reset_peak_memory_stats=lambda self, device_index=None: None,
)


@breaks("memory.asking_leaves_the_cache")
class AskingEmptiesTheCache(GOOD_Accelerator):
    def memory_allocated(self, device_index: int | None = None) -> int:
        self.empty_cache()
        return super().memory_allocated(device_index)


@breaks("memory.statistics_agree_with_the_figures")
class StatsAreStale(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._stats = super().memory_stats()

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return self._stats


@breaks("device_index.reset_reaches_one_device memory.peak_of_another_device_stays")
class ResetReachesAll(GOOD_Accelerator):
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        for index in range(self.device_count()):
            super().reset_peak_memory_stats(index)


# --- memory figures that contradict one another

_HIGHEST = "memory.peak_is_the_highest_that_was_allocated"
_DEVICES = "memory.statistics_of_each_device_have_the_same_keys"
_HELD = "memory.what_is_held_is_not_available"
_BLOCKS = "memory.figures_are_sums_of_aligned_blocks"

broken(
    "PeakIsBelowThePresent",
    "memory.figures_are_in_order",
    max_memory_allocated=lambda self, device_index=None: max(
        GOOD_Accelerator.max_memory_allocated(self, device_index) - 4096, 0
    ),
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


broken(
    "EverythingIsAvailable",
    _HELD,
    "memory.available_memory_falls device_index.index_chooses_the_device[available_memory]",
    available_memory=lambda self, device_index=None: self.total_memory(device_index),
)


broken(
    "available_memory_is_one_more",
    _BLOCKS,
    available_memory=lambda self, device_index=None: (
        GOOD_Accelerator.available_memory(self, device_index) + 1
    ),
)


# --- what the checks of memory's statistics notice: figures of one group, or of one meaning, that do not agree


@breaks("memory.statistics_are_whole")
class FreedBlocksAreNotCounted(GOOD_Accelerator):
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        counts = {"current": 3, "allocated": 5, "freed": 1}
        return {
            **super().memory_stats(device_index),
            **{f"allocation.all.{name}": count for name, count in counts.items()},
        }
