# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams, events and graphs of the pretended devices. Work is done when its call returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override


class Event:
    """A mark with the time it was reached at."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timing = enable_timing
        self.reached: float | None = None

    def record(self, stream: Any = None) -> None:
        self.reached = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        if not self.timing or self.reached is None or end.reached is None:
            raise RuntimeError("both events must be recorded, with enable_timing=True")
        return 1000 * (end.reached - self.reached)


class Stream:
    """A queue of one device; equal only to itself."""

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    def wait_stream(self, stream: Stream) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class Graph(TorchDispatchMode):
    """Records operators, and runs them again into the tensors they made."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[tuple[Any, Any, Any, Any]] = []
        self.memory = object()

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.work.append((func, args, kwargs or {}, result))
        return result

    def pool(self) -> object:
        return self.memory

    def replay(self) -> None:
        for func, args, kwargs, result in self.work:
            again = func(*args, **kwargs)
            if isinstance(again, torch.Tensor) and again is not result:
                result.copy_(again)


class Streams(threading.local):
    """Which stream of each device is current, in each thread."""

    def __init__(self, default: list[Stream]) -> None:
        self.default = default
        self.current = list(default)

    @contextmanager
    def chosen(self, stream: Stream | None) -> Iterator[None]:
        if stream is None:
            yield
            return
        former = self.current[stream.device_index]
        self.current[stream.device_index] = stream
        try:
            yield
        finally:
            self.current[stream.device_index] = former
