# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Many transfers of which few are in flight: each holds a descriptor, and a copy of a tensor that is not contiguous."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from accel_ops.io.future import TransferFuture

Progress: TypeAlias = "Callable[[int, int], None]"
#: Starts a transfer of so many bytes.
Start: TypeAlias = "tuple[int, Callable[[], TransferFuture]]"

#: Each has a descriptor, and the library opens another of the same file.
_MOST = 32
_MOST_BYTES = 256 << 20
#: Seconds between two calls of a progress function.
_INTERVAL = 0.1


def complete(starts: Iterable[Start], total: int, progress: Progress | None) -> None:
    """Start transfers in order, and wait for all. Raises the first error, after those in flight have ended."""
    window = _Window(total, progress)
    try:
        for size, start in starts:
            while window.is_full():
                window.join()
            window.add(size, start())
        while window.join():
            pass
    except BaseException:
        window.abandon()
        raise
    if progress is not None:
        progress(total, total)


class _Window:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress = total, progress
        self._futures: deque[tuple[int, TransferFuture]] = deque()
        self._done = self._in_flight = 0
        self._next_report = time.monotonic() + _INTERVAL

    def is_full(self) -> bool:
        return len(self._futures) >= _MOST or self._in_flight >= _MOST_BYTES

    def add(self, size: int, future: TransferFuture) -> None:
        self._futures.append((size, future))
        self._in_flight += size

    def join(self) -> bool:
        """Wait for the oldest transfer; False where there is none."""
        if not self._futures:
            return False
        size, future = self._futures[0]
        while not future.wait(None if self._progress is None else _INTERVAL):
            self._report()
        future.result()
        self._futures.popleft()
        self._in_flight -= size
        self._done += size
        self._report()
        return True

    def abandon(self) -> None:
        """Cancel what is in flight, and wait until its memory is not used any more."""
        for _, future in self._futures:
            future.cancel()
        for _, future in self._futures:
            future.wait()

    def _report(self) -> None:
        if self._progress is not None and time.monotonic() >= self._next_report:
            self._progress(self._done + sum(future.progress() for _, future in self._futures), self._total)
            self._next_report = time.monotonic() + _INTERVAL
