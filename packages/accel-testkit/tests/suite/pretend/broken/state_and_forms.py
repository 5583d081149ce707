# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Calls that remember the last one, that take only some texts and seeds, or that leave more than was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator

from broken import breaks

_SEEDS = "seeds.every_way_to_seed_gives_one_state"
_STAYS = "current_device.current_device_stays_without_an_index"


@breaks(f"{_SEEDS}[-1]", f"{_SEEDS}[-1099511627776]")
class SeedsLoseTheirSign(GOOD_Accelerator):
    def manual_seed(self, seed: int) -> None:
        super().manual_seed(abs(seed))


@breaks(_SEEDS)
class SeedingDraws(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        super().manual_seed_all(seed)
        torch.rand(1)


@breaks("current_device.set_device_counts_each_time")
class SameDeviceIsNotSetAgain(GOOD_Accelerator):
    _last: object = None

    def set_device(self, device_index: int) -> None:
        if device_index != self._last:
            super().set_device(device_index)
            self._last = device_index


@breaks(f"{_STAYS}[manual_seed_all]")
class SeedingAllVisitsAll(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        for index in range(self.device_count()):
            self.set_device(index)
            self.manual_seed(seed)


@breaks(f"{_STAYS}[empty_cache]")
class EmptyingChoosesDevice0(GOOD_Accelerator):
    def empty_cache(self) -> None:
        self.set_device(0)


@breaks("ranges.range_has_any_name[percent signs]")
class RangeNamesAreFormats(GOOD_Accelerator):
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        msg % ()  # a profiler formats it


@breaks("ranges.range_has_any_name[letters]")
class RangeNamesAreAscii(GOOD_Accelerator):
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        msg.encode("ascii")


@breaks("lazy_calls.lazy_call_calls_each_time")
class LazyCallsAreMadeOnce(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._called: set[Callable[[], Any]] = set()

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        if callback not in self._called:
            self._called.add(callback)
            return super().lazy_call(callback)
        return None


@breaks("tensors.constructed_tensor_can_be_written")
class TensorsRequireGradients(GOOD_Accelerator):
    def tensor_constructor(self, dtype: torch.dtype) -> Any:
        return partial(torch.tensor, dtype=dtype, requires_grad=dtype.is_floating_point)


@breaks("pinned_memory.pinned_memory_like_another_is_host_memory[meta]")
class BuffersLikeAnotherAreOfAnyDevice(GOOD_Accelerator):
    def pin_empty_like(
        self, tensor: torch.Tensor, device: Any = "cpu", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        return super().pin_empty_like(tensor, dtype=dtype)


@breaks("pinned_memory.device_memory_is_not_pinned", "pinned_memory.ordinary_memory_is_not_pinned")
class OnlyPinnedMemoryIsAskedFor(GOOD_Accelerator):
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        if not super().torch_is_pinned(tensor):
            raise RuntimeError("no memory of this driver")
        return True


@breaks("graphs.capture_ends_with_an_exception[RuntimeError]")
class CaptureSwallowsErrors(GOOD_Accelerator):
    @contextmanager
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[Any]:
        try:
            with super().capture_to_graph(graph, pool, stream):
                yield
        except RuntimeError:
            pass


@breaks("memory.asking_leaves_the_cache")
class AskingForTheReservedEmptiesTheCache(GOOD_Accelerator):
    def memory_reserved(self, device_index: int | None = None) -> int:
        self.empty_cache()
        return super().memory_reserved(device_index)


@breaks("dtypes.listed_types_are_trained_in")
class TypesOfStorageAreListed(GOOD_Accelerator):
    def supported_dtypes(self) -> list[torch.dtype]:
        return [*super().supported_dtypes(), torch.float8_e4m3fn]


@breaks("streams.stream_is_made_on_the_device_named")
class StreamsAreOfTheCurrentDevice(GOOD_Accelerator):
    @property
    def Stream(self) -> Any:
        return lambda device=None, **options: self.runtime.Stream()


for _number in (0, 3, 4096.0, None):
    breaks("pinned_memory.alignment_is_a_number_of_bytes", name=f"pin_memory_alignment_is_{_number}")(
        type(
            f"AlignmentIs{_number}",
            (GOOD_Accelerator,),
            {"pin_memory_alignment": lambda self, number=_number: number},
        )
    )
