# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""GB/s of one file, by an engine with its options, and by plain system calls for comparison."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import torch

from accel_ops.io.requests import EngineOptions
from accel_ops.io.session import Session
from accel_ops.pinned_memory import MEMORY

_BLOCK = 1 << 20
_THREADS = 8


@dataclass(frozen=True)
class Rates:
    """GB/s of overwriting a file, and of reading it."""

    write: float
    read: float

    def better(self, other: Rates) -> Rates:
        """Return the larger of each."""
        return Rates(max(self.write, other.write), max(self.read, other.read))

    @property
    def mean(self) -> float:
        """The harmonic mean: GB/s of a byte that is written and read once."""
        return 2 / (1 / self.write + 1 / self.read)


class Measurement:
    """An open file, and page-locked memory of its size."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self.size = fd, size
        self._memory = MEMORY.allocate(size, torch.uint8)
        self._view = memoryview((ctypes.c_char * size).from_address(self._memory.data_ptr())).cast("B")
        pattern = torch.randint(0, 256, (_BLOCK,), dtype=torch.uint8)  # not zeros: some devices compress
        for part in self._memory.split(_BLOCK):
            part.copy_(pattern[: part.numel()])
        with closing(Session(EngineOptions())) as session:
            session.run(self._memory, fd, write=True)  # later writes overwrite

    def engine(self, name: str | None, options: EngineOptions) -> Rates:
        """Measure an engine, one request of the whole file; raises OSError, InvalidEnvironment."""
        with closing(Session(options, name)) as session:
            _ = session.engine  # opened before the clock starts
            return Rates(
                self._rate(lambda: session.run(self._memory, self._fd, write=True)),
                self._rate(lambda: session.run(self._memory, self._fd, write=False)),
            )

    def buffered(self) -> Rates:
        """Measure one thread through the page cache, as `dd conv=fsync` and `dd` with an empty cache."""
        fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDWR)

        def stored() -> None:
            self._blocks(os.pwritev, fd, range(self._count))
            os.fsync(fd)

        try:
            return Rates(
                self._rate(stored), self._rate(lambda: self._blocks(os.preadv, fd, range(self._count)))
            )
        finally:
            os.close(fd)

    def raw(self) -> Rates:
        """Measure 8 threads that do nothing but aligned system calls on the file: the limit of the disk."""

        def all_blocks(call: Callable[..., int]) -> None:
            with ThreadPoolExecutor(_THREADS) as pool:
                parts = [range(first, self._count, _THREADS) for first in range(_THREADS)]
                list(pool.map(lambda part: self._blocks(call, self._fd, part), parts))

        return Rates(self._rate(lambda: all_blocks(os.pwritev)), self._rate(lambda: all_blocks(os.preadv)))

    @property
    def _count(self) -> int:
        return -(-self.size // _BLOCK)

    def _blocks(self, call: Callable[..., int], fd: int, numbers: range) -> None:
        for number in numbers:
            begin, end = number * _BLOCK, min(self.size, (number + 1) * _BLOCK)
            while begin < end:
                begin += call(fd, [self._view[begin:end]], begin)

    def _rate(self, work: Callable[[], object]) -> float:
        # Where the file system refuses direct I/O, reads must not find the page cache full of the last write.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        work()
        return self.size / max(time.perf_counter() - start, 1e-9) / 1e9
