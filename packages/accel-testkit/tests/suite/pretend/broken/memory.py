# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory: figures that are missing, stale, or another device's."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import TOTAL_MEMORY

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
    "device_index.reset_reaches_one_device",
    "memory.figure_follows_tensors[max_memory_allocated]",
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
