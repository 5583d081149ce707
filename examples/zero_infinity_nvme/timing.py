# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a step goes: counts the bytes of DeepSpeed's I/O handles, and the time it waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Clock:
    """Bytes that were read and written, and seconds that the training waited."""

    read: int = 0
    written: int = 0
    read_wait: float = 0.0
    write_wait: float = 0.0

    def attach(self, handle: type[Any]) -> None:
        """Count the transfers of every handle of this class."""
        pending: dict[int, bool] = {}  # whether the last request of a handle writes

        def started(method: Callable[..., int], writes: bool) -> Callable[..., int]:
            def call(self_: Any, buffer: Any, *given: Any) -> int:
                self._count(buffer.nbytes, writes)
                pending[id(self_)] = writes
                return self._timed(writes, method, self_, buffer, *given)

            return call

        def waited(method: Callable[..., int]) -> Callable[..., int]:
            return lambda self_: self._timed(pending.get(id(self_), False), method, self_)

        for name in ("async_pread", "sync_pread"):
            setattr(handle, name, started(getattr(handle, name), False))
        for name in ("async_pwrite", "sync_pwrite"):
            setattr(handle, name, started(getattr(handle, name), True))
        handle.wait = waited(handle.wait)

    def line(self, total: float) -> str:
        """Return a line for a step that took `total` seconds, and begin again."""
        compute = max(0.0, total - self.read_wait - self.write_wait)
        text = (
            f"{total:6.2f} s = compute {compute:5.2f} + waiting for reads {self.read_wait:5.2f}"
            f" + for writes {self.write_wait:5.2f}; read {self.read / 2**20:6.0f} MiB,"
            f" wrote {self.written / 2**20:6.0f} MiB"
        )
        self.read = self.written = 0
        self.read_wait = self.write_wait = 0.0
        return text

    def _count(self, size: int, writes: bool) -> None:
        if writes:
            self.written += size
        else:
            self.read += size

    def _timed(self, writes: bool, method: Callable[..., int], *given: Any) -> int:
        start = time.perf_counter()
        try:
            return method(*given)
        finally:
            took = time.perf_counter() - start
            if writes:
                self.write_wait += took
            else:
                self.read_wait += took
