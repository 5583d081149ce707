# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory: figures that are missing, stale, or another device's."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import TOTAL_MEMORY

from broken import answers, breaks

_FIGURES = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "total_memory",
    "available_memory",
)
answers(dict.fromkeys(_FIGURES), "memory.figure_is_a_number_of_bytes[{}]")
answers({"memory_allocated": 0, "memory_reserved": 0, "total_memory": 0, "available_memory": TOTAL_MEMORY * 2})


@breaks()
class PeakIsThePresent(GOOD_Accelerator):
    """As it was on mps."""

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self.memory_allocated(device_index)


@breaks()
class ReservedPeakIsThePresent(GOOD_Accelerator):
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return self.memory_reserved(device_index)


@breaks()
class PeaksAreNeverReset(GOOD_Accelerator):
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        pass


@breaks("memory.peak_can_be_reset[reset_max_memory_allocated-max_memory_allocated]")
class OldResetIsMissing(GOOD_Accelerator):
    """As it was on xpu."""

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        self._ns.reset_max_memory_allocated(device_index)


@breaks("memory.peak_can_be_reset[reset_max_memory_cached-max_memory_cached]")
class OldResetOfTheCacheIsEmpty(GOOD_Accelerator):
    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        pass


@breaks("memory.old_names_give_the_same_figures")
class OldNameIsAnotherFigure(GOOD_Accelerator):
    def memory_cached(self, device_index: int | None = None) -> int:
        return 0


@breaks("memory.reserved_memory_follows_tensors")
class CacheIsKept(GOOD_Accelerator):
    def empty_cache(self) -> None:
        pass


@breaks()
class StatsHaveOtherKeys(GOOD_Accelerator):
    """As it was on hpu."""

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return {"Limit": TOTAL_MEMORY, "InUse": self.memory_allocated(device_index)}


@breaks("memory.stats_agree_with_the_figures")
class StatsAreStale(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._stats = super().memory_stats()

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return self._stats


def _of_device_0(name: str) -> Any:
    def figure(self: GOOD_Accelerator, device_index: int | None = None) -> int:
        return getattr(self._ns, name)(0)  # type: ignore[no-any-return]

    return figure


for _name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
    breaks(f"memory.each_device_has_its_figures[{_name}]", name=f"{_name}_ignores_the_index")(
        type(f"{_name}_ignores_the_index", (GOOD_Accelerator,), {_name: _of_device_0(_name)})
    )


@breaks("memory.peak_of_one_device_is_reset_alone")
class ResetReachesAll(GOOD_Accelerator):
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        for index in range(self.device_count()):
            super().reset_peak_memory_stats(index)
