# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The engine without the library: `os.preadv` and `os.pwritev` on threads of Python, through the page cache."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from accel_ops.io.requests import EngineOptions, Request, Result

_MOST_THREADS = 8
#: Retries of one system call that transferred nothing, after which its error is reported.
_RETRIES = 10000
_END_OF_FILE = getattr(errno, "ENODATA", errno.EIO)


@dataclass
class _Job:
    request: Request
    next: int = 0
    moved: int = 0
    blocks: int = 0
    error: int = 0
    error_at: int = field(default=-1)

    def exhausted(self) -> bool:
        return bool(self.error) or self.next >= self.request.size

    def ended(self) -> bool:
        return self.blocks == 0 and self.exhausted()

    def fail(self, error: int, at: int) -> None:
        if not self.error or at < self.error_at:
            self.error, self.error_at = error, at

    def result(self) -> Result:
        if self.error:
            return Result(self.error_at, self.error, self.request.offset + self.error_at)
        return Result(self.request.size, 0, -1)


class PythonEngine:
    """An engine of Python threads; they start with the first requests."""

    name = "python"

    def __init__(self, reason: str, options: EngineOptions) -> None:
        self.reason = reason
        self._block_size = max(4096, options.block_size)
        self._most = max(1, min(_MOST_THREADS, options.depth * options.workers))
        self._changed = threading.Condition()
        self._jobs: dict[int, _Job] = {}
        self._queue: deque[_Job] = deque()
        self._threads: list[threading.Thread] = []
        self._numbers = self._in_flight = 0
        self._paused = self._stopping = False

    def submit(self, request: Request) -> int:
        """Start a request; see `Engine`."""
        with self._changed:
            self._numbers += 1
            job = self._jobs[self._numbers] = _Job(request)
            if not job.ended():
                self._queue.append(job)
            blocks = self._in_flight + request.size // self._block_size + 1
            while len(self._threads) < min(self._most, blocks):
                self._threads.append(threading.Thread(target=self._work, name="accel-io", daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()
            return self._numbers

    def wait(self, number: int, timeout: int) -> Result | None:
        """Wait for a request; see `Engine`."""
        with self._changed:
            job = self._jobs.get(number)
            if job is None:
                raise OSError(errno.ESRCH, f"request {number} is unknown")
            if not self._changed.wait_for(job.ended, None if timeout < 0 else timeout / 1000):
                return None
            return job.result()

    def forget(self, number: int) -> None:
        """Delete the result; see `Engine`."""
        with self._changed:
            self._jobs.pop(number, None)

    def progress(self, number: int) -> int:
        """Return transferred bytes; see `Engine`."""
        with self._changed:
            return self._jobs[number].moved if number in self._jobs else 0

    def cancel(self, number: int) -> None:
        """Cancel a request; see `Engine`."""
        with self._changed:
            job = self._jobs.get(number)
            if job and not job.exhausted():
                job.fail(errno.ECANCELED, job.next)
            self._changed.notify_all()

    def pause(self, timeout: int) -> bool:
        """Start no further block; see `Engine`."""
        with self._changed:
            self._paused = True
            return self._changed.wait_for(
                lambda: not self._in_flight, None if timeout < 0 else timeout / 1000
            )

    def resume(self) -> None:
        """Continue; see `Engine`."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def close(self, timeout: int) -> bool:
        """End the engine; see `Engine`."""
        self.resume()
        with self._changed:
            over = self._changed.wait_for(
                lambda: all(job.ended() for job in self._jobs.values()),
                None if timeout < 0 else timeout / 1000,
            )
            self._stopping = over
            self._changed.notify_all()
        for thread in self._threads if over else ():
            thread.join()
        return over

    def abandon(self) -> None:
        """Do nothing: a child has none of the threads."""

    def _work(self) -> None:
        while taken := self._take():
            job, begin, end = taken
            moved, error = _transfer(job.request, begin, end)
            with self._changed:
                job.moved += moved
                if error:
                    job.fail(error, begin + moved)
                job.blocks -= 1
                self._in_flight -= 1
                self._changed.notify_all()

    def _take(self) -> tuple[_Job, int, int] | None:
        with self._changed:
            while True:
                while self._queue and self._queue[0].exhausted():
                    self._queue.popleft()
                if self._queue and not self._paused:
                    break
                if self._stopping:
                    return None
                self._changed.wait()
            job = self._queue[0]
            begin = job.next
            job.next = min(begin + self._block_size, job.request.size)
            job.blocks += 1
            self._in_flight += 1
            return job, begin, job.next


def run(request: Request) -> Result:
    """Carry out a request on the calling thread."""
    moved, error = _transfer(request, 0, request.size)
    return Result(moved, error, request.offset + moved if error else -1)


def _transfer(request: Request, begin: int, end: int) -> tuple[int, int]:
    """Transfer bytes of the request; returns how many, and 0 or an errno."""
    if begin == end:
        return 0, 0
    memory = memoryview((ctypes.c_char * (end - begin)).from_address(request.address + begin)).cast("B")
    call = os.pwritev if request.write else os.preadv
    moved = retries = 0
    while moved < end - begin:
        try:
            count = call(request.fd, [memory[moved:]], request.offset + begin + moved)
        except BlockingIOError as error:
            retries += 1
            if retries > _RETRIES:
                return moved, error.errno or errno.EAGAIN
            time.sleep(0.001)
        except OSError as error:
            return moved, error.errno or errno.EIO
        else:
            if count == 0:
                return moved, errno.EIO if request.write else _END_OF_FILE
            moved += count
    return moved, 0
