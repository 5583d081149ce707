# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a vendor's runtime offers as `torch.<type>`: here a module-like object for two pretended devices.

Work is done when its call returns. Memory counters follow the tensors that are made on `cpu:0` and `cpu:1`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TOTAL_MEMORY = 1 << 40
#: What the runtime takes for itself on each device; tensors are counted in tests only.
CONTEXT = 1 << 28
#: What a tensor's memory is a multiple of, in bytes.
_BLOCK = 512
DEVICES = 2


def count_visible() -> int:
    """Return how many of the devices the process may use; all if GOOD_VISIBLE_DEVICES is not set."""
    text = os.environ.get("GOOD_VISIBLE_DEVICES")
    if text is None:
        return DEVICES
    return sum(part.isdigit() and int(part) < DEVICES for part in text.split(","))


class Event:
    """A mark with the time it was reached at."""

    def __init__(self, enable_timing=False):
        self.timing = enable_timing
        self.reached = None

    def record(self, stream=None):
        self.reached = time.perf_counter()

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        if not self.timing or self.reached is None or end.reached is None:
            raise RuntimeError("both events must be recorded, with enable_timing=True")
        return 1000 * (end.reached - self.reached)


class Stream:
    """A queue of one device; equal only to itself."""

    def __init__(self, device_index):
        self.device_index = device_index

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        event.wait(self)

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self):
        pass

    def query(self):
        return True


class Streams(threading.local):
    """Which stream of each device is current, in each thread."""

    def __init__(self, default):
        self.default = default
        self.current = list(default)

    @contextmanager
    def chosen(self, stream):
        if stream is None:
            yield
            return
        former = self.current[stream.device_index]
        self.current[stream.device_index] = stream
        try:
            yield
        finally:
            self.current[stream.device_index] = former


class Graph(TorchDispatchMode):
    """Records operators, and runs them again into the tensors they made."""

    def __init__(self):
        super().__init__()
        self.work = []
        self.memory = object()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.work.append((func, args, kwargs or {}, result))
        return result

    def pool(self):
        return self.memory

    def replay(self):
        for func, args, kwargs, result in self.work:
            again = func(*args, **kwargs)
            for before, after in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(after, torch.Tensor) and after is not before:
                    before.copy_(after)


@dataclass
class Counters:
    """Bytes on one device; what is freed stays reserved until the cache is emptied."""

    allocated: int = 0
    peak: int = 0
    reserved: int = 0
    reserved_peak: int = 0
    made: int = 0
    tensors: int = 0

    def add(self, nbytes):
        self.allocated += nbytes
        self.made += nbytes
        self.tensors += 1
        self.reserved = max(self.reserved, self.allocated)
        self.peak = max(self.peak, self.allocated)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def remove(self, nbytes):
        self.allocated -= nbytes
        self.tensors -= 1


class Meter(TorchDispatchMode):
    """While it is active, tensors made on an indexed device are counted there."""

    counters = (Counters(), Counters())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        device = (kwargs or {}).get("device")
        if isinstance(result, torch.Tensor) and device is not None and device.index is not None:
            counters = self.counters[device.index]
            blocks = -(-result.nbytes // _BLOCK) * _BLOCK
            counters.add(blocks)
            weakref.finalize(result, counters.remove, blocks)
        return result


class Runtime:
    """Generators, streams and memory counters for each device."""

    Event = Event

    def __init__(self):
        self._current = threading.local()  # as in torch, each thread has its own
        self.capturing = False
        self.streams = Streams([Stream(index) for index in range(DEVICES)])
        # torch draws host numbers from its one default generator: that is device 0's.
        self.default_generators = [torch.default_generator, torch.Generator()]

    def is_available(self):
        return self.device_count() > 0

    def device_count(self):
        return count_visible()

    @property
    def index(self):
        return getattr(self._current, "index", 0)

    def current_device(self):
        return self.index

    def set_device(self, device):
        index = device if isinstance(device, int) else torch.device(device).index
        # None is no device here, and the current one elsewhere.
        self._current.index = self._of(-1 if index is None else index)

    def synchronize(self, index=None):
        self._of(index)

    def _of(self, index):
        if index is None:
            return self.index
        if index not in range(DEVICES):
            raise RuntimeError(f"there is no device {index}, only {DEVICES}")
        return index

    # ------------------------------------------------------------------------------------- random

    def get_rng_state(self, index=None):
        return self.default_generators[self._of(index)].get_state()

    def set_rng_state(self, state, index=None):
        self.default_generators[self._of(index)].set_state(state)

    def manual_seed(self, seed):
        self.default_generators[self.index].manual_seed(seed)

    def manual_seed_all(self, seed):
        for generator in self.default_generators:
            generator.manual_seed(seed)

    def initial_seed(self):
        return self.default_generators[self.index].initial_seed()

    # ------------------------------------------------------------------------------------ streams

    def Stream(self, device=None):
        return Stream(self._of(device))

    def stream(self, stream):
        return self.streams.chosen(stream)

    def current_stream(self, index=None):
        return self.streams.current[self._of(index)]

    def default_stream(self, index=None):
        return self.streams.default[self._of(index)]

    def _lazy_call(self, callback):
        return callback()

    @contextmanager
    def graph(self, graph, pool=None, stream=None):
        graph.memory = pool or graph.memory
        self.capturing = True
        try:
            with self.stream(stream), graph:
                yield
        finally:
            self.capturing = False

    # ------------------------------------------------------------------------------------- memory

    def _counters(self, index=None):
        return Meter.counters[self._of(index)]

    def empty_cache(self):
        for counters in Meter.counters:
            counters.reserved = counters.allocated

    def memory_allocated(self, index=None):
        return self._counters(index).allocated

    def max_memory_allocated(self, index=None):
        return self._counters(index).peak

    def memory_reserved(self, index=None):
        return self._counters(index).reserved

    def max_memory_reserved(self, index=None):
        return self._counters(index).reserved_peak

    def reset_peak_memory_stats(self, index=None):
        counters = self._counters(index)
        counters.peak, counters.reserved_peak = counters.allocated, counters.reserved

    def memory_stats(self, index=None):
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

    def get_device_properties(self, index):
        self._of(index)
        return SimpleNamespace(total_memory=TOTAL_MEMORY)

    def mem_get_info(self, index=None):
        return TOTAL_MEMORY - CONTEXT - self._counters(index).reserved, TOTAL_MEMORY

    def is_bf16_supported(self):
        return True


class TheRuntime:
    """The one of the process, which all accelerators share; a run of the suite begins with a new one."""

    now = Runtime()
