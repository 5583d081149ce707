# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a vendor's runtime offers as `torch.<type>`: here a module-like object for two pretended devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from accel_good import visible
from accel_good.memory import Counters, Meter
from accel_good.streams import Event, Graph, Stream, Streams

TOTAL_MEMORY = 1 << 40
#: What the runtime takes for itself on each device; tensors are counted in tests only.
CONTEXT = 1 << 28
DEVICES = 2


class Runtime:
    """Generators, streams and memory counters for each device."""

    Event = Event

    def __init__(self) -> None:
        self._current = threading.local()  # as in torch, each thread has its own
        self.capturing = False
        self.streams = Streams([Stream(index) for index in range(DEVICES)])
        # torch draws host numbers from its one default generator: that is device 0's.
        self.default_generators = [torch.default_generator, torch.Generator()]

    def is_available(self) -> bool:
        return self.device_count() > 0

    def device_count(self) -> int:
        return visible.count(DEVICES)

    def current_device(self) -> int:
        return self.index

    @property
    def index(self) -> int:
        return getattr(self._current, "index", 0)

    @index.setter
    def index(self, index: int) -> None:
        self._current.index = index

    def set_device(self, device: int | str | torch.device) -> None:
        index = device if isinstance(device, int) else torch.device(device).index
        if index not in range(DEVICES):
            raise RuntimeError(f"there is no device {index}, only {DEVICES}")
        self.index = index

    def synchronize(self, index: int | None = None) -> None:
        self._of(index)

    def _of(self, index: int | None) -> int:
        if index is None:
            return self.index
        if index not in range(DEVICES):
            raise RuntimeError(f"there is no device {index}, only {DEVICES}")
        return index

    # ------------------------------------------------------------------------------------- random

    def get_rng_state(self, index: int | None = None) -> torch.Tensor:
        return self.default_generators[self._of(index)].get_state()

    def set_rng_state(self, state: torch.Tensor, index: int | None = None) -> None:
        self.default_generators[self._of(index)].set_state(state)

    def manual_seed(self, seed: int) -> None:
        self.default_generators[self.index].manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        for generator in self.default_generators:
            generator.manual_seed(seed)

    def initial_seed(self) -> int:
        return self.default_generators[self.index].initial_seed()

    # ------------------------------------------------------------------------------------ streams

    def Stream(self, device: int | None = None) -> Stream:
        return Stream(self._of(device))

    def stream(self, stream: Stream | None) -> AbstractContextManager[None]:
        return self.streams.chosen(stream)

    def current_stream(self, index: int | None = None) -> Stream:
        return self.streams.current[self._of(index)]

    def default_stream(self, index: int | None = None) -> Stream:
        return self.streams.default[self._of(index)]

    def _lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback()

    @contextmanager
    def graph(self, graph: Graph, pool: object = None, stream: Stream | None = None) -> Iterator[None]:
        graph.memory = pool or graph.memory
        self.capturing = True
        try:
            with self.stream(stream), graph:
                yield
        finally:
            self.capturing = False

    # ------------------------------------------------------------------------------------- memory

    def _counters(self, index: int | None = None) -> Counters:
        return Meter.counters[self._of(index)]

    def empty_cache(self) -> None:
        for counters in Meter.counters:
            counters.empty_cache()

    def memory_allocated(self, index: int | None = None) -> int:
        return self._counters(index).allocated

    def max_memory_allocated(self, index: int | None = None) -> int:
        return self._counters(index).peak

    def memory_reserved(self, index: int | None = None) -> int:
        return self._counters(index).reserved

    def max_memory_reserved(self, index: int | None = None) -> int:
        return self._counters(index).reserved_peak

    def reset_peak_memory_stats(self, index: int | None = None) -> None:
        self._counters(index).reset_peak()

    def memory_stats(self, index: int | None = None) -> dict[str, int]:
        counters = self._counters(index)
        return {
            "allocated_bytes.all.current": counters.allocated,
            "allocated_bytes.all.peak": counters.peak,
            "allocated_bytes.all.allocated": counters.made,
            "allocated_bytes.all.freed": counters.made - counters.allocated,
            "allocation.all.current": counters.tensors,
            "reserved_bytes.all.current": counters.reserved,
            "reserved_bytes.all.peak": counters.reserved_peak,
        }

    def get_device_properties(self, index: int) -> SimpleNamespace:
        self._of(index)
        return SimpleNamespace(total_memory=TOTAL_MEMORY)

    def mem_get_info(self, index: int | None = None) -> tuple[int, int]:
        return TOTAL_MEMORY - CONTEXT - self._counters(index).reserved, TOTAL_MEMORY

    def is_bf16_supported(self) -> bool:
        return True


class TheRuntime:
    """The one of the process, which all accelerators share; a run of the suite begins with a new one."""

    now = Runtime()
