# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The engines of file I/O: io_uring and threads of the library (csrc/accel_io.h), and threads of Python without it.

`open_engine` chooses: io_uring where this process may use it, else threads, else Python. ACCEL_IO_ENGINE overrides.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_void_p
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias

from accel_core.errors import InvalidEnvironment
from accel_ops.host import c_interface, library
from accel_ops.host.c_interface import IoRequest, IoResult


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine.

    block_size: bytes of one system call, at most.
    depth:      blocks in flight of one worker, at most.
    fault_rate: for tests: this many of 1000 system calls fail, or transfer less; drawn from `fault_seed`.
    """

    block_size: int = 1 << 20
    depth: int = 32
    workers: int = 1
    fault_rate: int = 0
    fault_seed: int = 0


_KINDS = {"uring": c_interface.URING, "threads": c_interface.THREADS}


class NativeEngine:
    """An engine of the library. Raises OSError where the system has none of that name for this process.

    name:   `uring`, `threads` or, of `PythonEngine`, `python`.
    reason: why it is this one; a sentence.
    Times are in milliseconds; a negative one means no limit.
    """

    def __init__(self, functions: Any, name: str, reason: str, options: EngineOptions) -> None:
        self.name, self.reason = name, reason
        self._functions = functions
        self._engine = c_void_p()
        given = c_interface.IoOptions(
            options.block_size,
            options.fault_seed,
            _KINDS[name],
            min(options.depth, 2**31 - 1),
            min(options.workers, 2**31 - 1),
            options.fault_rate,
        )
        if error := functions.accel_io_open(byref(given), byref(self._engine)):
            raise OSError(error, os.strerror(error))

    def submit(self, request: IoRequest) -> int:
        """Start a request; returns its number. Raises OSError where it cannot be started."""
        number: int = self._functions.accel_io_submit(self._engine, byref(request))
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def wait(self, number: int, timeout: int) -> IoResult | None:
        """Wait for the end of a request; None: it has not ended. Raises OSError (ESRCH) for an unknown one."""
        result = IoResult()
        error = self._functions.accel_io_wait(self._engine, number, timeout, byref(result))
        if error == errno.ETIMEDOUT:
            return None
        if error:
            raise OSError(error, f"request {number} is unknown")
        return result

    def forget(self, number: int) -> None:
        """Delete what is known of a request that has ended."""
        self._functions.accel_io_forget(self._engine, number)

    def pause(self, timeout: int) -> bool:
        """Start no further block; return whether none is in flight any more."""
        return bool(self._functions.accel_io_pause(self._engine, timeout) == 0)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._functions.accel_io_resume(self._engine)

    def close(self, timeout: int) -> bool:
        """Wait for all requests and end the threads; False where some have not ended: the engine remains."""
        if not self._engine:
            return True
        if self._functions.accel_io_close(self._engine, timeout):
            return False
        self._engine = c_void_p()
        return True

    def abandon(self) -> None:
        """In a child of fork(): close what belongs to the engine of the parent."""
        if self._engine:
            self._functions.accel_io_abandon(self._engine)
            self._engine = c_void_p()


def inspect(fd: int) -> tuple[int, int, int]:
    """Return mode, and the alignments of memory and offset that O_DIRECT demands of the file; both 0: it has none."""
    file = c_interface.IoFile()
    if error := library.load().functions.accel_io_inspect(fd, byref(file)):
        raise OSError(error, os.strerror(error))
    return file.mode, file.memory_alignment, file.offset_alignment


_MOST_THREADS = 8
#: Retries of one system call that transferred nothing, after which its error is reported.
_RETRIES = 10000
_END_OF_FILE = getattr(errno, "ENODATA", errno.EIO)


@dataclass
class _DividedRequest:
    """A request of `PythonEngine`. left: blocks that have not ended. error_at: bytes before the first that failed."""

    request: IoRequest
    left: int
    error: int = 0
    error_at: int = 0

    def fail(self, error: int, at: int) -> None:
        if not self.error or at < self.error_at:
            self.error, self.error_at = error, at

    def ended(self) -> bool:
        return not self.left


class PythonEngine:
    """An engine of Python threads; they start with the first requests."""

    name = "python"

    def __init__(self, reason: str, options: EngineOptions) -> None:
        self.reason = reason
        self._block_size = max(4096, options.block_size)
        self._most = max(1, min(_MOST_THREADS, options.depth * options.workers))
        self._changed = threading.Condition()
        self._jobs: dict[int, _DividedRequest] = {}
        #: Blocks of jobs, by their first byte; None ends a thread.
        self._blocks: SimpleQueue[tuple[_DividedRequest, int] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._numbers = self._in_flight = 0
        self._paused = False

    def submit(self, request: IoRequest) -> int:
        """Start a request; see `NativeEngine`."""
        starts = range(0, request.size, self._block_size)
        with self._changed:
            self._numbers += 1
            job = self._jobs[self._numbers] = _DividedRequest(request, len(starts))
            for start in starts:
                self._blocks.put((job, start))
            waiting = sum(each.left for each in self._jobs.values())
            while len(self._threads) < min(self._most, waiting):
                self._threads.append(threading.Thread(target=self._work, name="accel-io", daemon=True))
                self._threads[-1].start()
            return self._numbers

    def wait(self, number: int, timeout: int) -> IoResult | None:
        """Wait for a request; see `NativeEngine`."""
        with self._changed:
            job = self._jobs.get(number)
            if job is None:
                raise OSError(errno.ESRCH, f"request {number} is unknown")
            if not self._until(job.ended, timeout):
                return None
            if job.error:
                return IoResult(job.error_at, job.request.offset + job.error_at, job.error)
            return IoResult(job.request.size, -1, 0)

    def forget(self, number: int) -> None:
        """Delete the result; see `NativeEngine`."""
        with self._changed:
            self._jobs.pop(number, None)

    def pause(self, timeout: int) -> bool:
        """Start no further block; see `NativeEngine`."""
        with self._changed:
            self._paused = True
            return self._until(lambda: not self._in_flight, timeout)

    def resume(self) -> None:
        """Continue; see `NativeEngine`."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def close(self, timeout: int) -> bool:
        """End the engine; see `NativeEngine`."""
        self.resume()
        with self._changed:
            if not self._until(lambda: all(job.ended() for job in self._jobs.values()), timeout):
                return False
        for _ in self._threads:
            self._blocks.put(None)
        for thread in self._threads:
            thread.join()
        return True

    def abandon(self) -> None:
        """Do nothing: a child has none of the threads."""

    def _until(self, condition: Callable[[], bool], timeout: int) -> bool:
        return self._changed.wait_for(condition, None if timeout < 0 else timeout / 1000)

    def _work(self) -> None:
        while taken := self._blocks.get():
            job, begin = taken
            end = min(begin + self._block_size, job.request.size)
            with self._changed:
                self._changed.wait_for(lambda: not self._paused)
                self._in_flight += 1
                # A block before one that has failed is still wanted: threads overtake each other.
                skipped = job.error and begin > job.error_at
            moved, error = (0, errno.ECANCELED) if skipped else _transfer(job.request, begin, end)
            with self._changed:
                if error:
                    job.fail(error, begin + moved)
                job.left -= 1
                self._in_flight -= 1
                self._changed.notify_all()


def run(request: IoRequest, native: bool) -> IoResult:
    """Carry out a request on the calling thread, without an engine."""
    if native:
        result = IoResult()
        library.load().functions.accel_io_run(byref(request), byref(result))
        return result
    moved, error = _transfer(request, 0, request.size)
    return IoResult(moved, request.offset + moved if error else -1, error)


def _transfer(request: IoRequest, begin: int, end: int) -> tuple[int, int]:
    """Transfer bytes of the request; returns how many, and 0 or an errno."""
    if begin == end:
        return 0, 0
    memory = memoryview((ctypes.c_char * (end - begin)).from_address(request.data + begin)).cast("B")
    call = os.pwritev if request.writes else os.preadv
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
                return moved, errno.EIO if request.writes else _END_OF_FILE
            moved += count
    return moved, 0


Engine: TypeAlias = "NativeEngine | PythonEngine"
#: Documented in accel_core.env, which only core imports.
_VARIABLE = "ACCEL_IO_ENGINE"
ENGINES = ("uring", "threads", "python")


def open_engine(options: EngineOptions, wanted: str | None = None) -> Engine:
    """Open the engine of that name, by default that of ACCEL_IO_ENGINE, by default the first that this process can use.

    Raises InvalidEnvironment if the one that is wanted cannot be used, or is not one of `ENGINES`.
    """
    name = os.environ.get(_VARIABLE, "").strip().lower() if wanted is None else wanted
    if name and name not in ENGINES:
        raise _invalid(name, "no such engine", f"one of {', '.join(ENGINES)}")
    functions, origin = library.load().functions, library.load().reason
    if name == "python":
        return PythonEngine("ACCEL_IO_ENGINE", options)
    if functions is None:
        if name:
            raise _invalid(name, f"no library: {origin}", "the library of accel-ops")
        return PythonEngine(f"no library: {origin}", options)
    reason = "ACCEL_IO_ENGINE" if name else "io_uring works in this process"
    if name != "threads":
        try:
            return NativeEngine(functions, "uring", reason, options)
        except OSError as error:
            if name:
                raise _invalid(name, f"io_uring_setup: {error}", "io_uring, in Linux 5.7 or later") from error
            reason = f"no io_uring: {error}"
    return NativeEngine(functions, "threads", reason, options)


def uses_library(wanted: str | None = None) -> bool:
    """Return True if `open_engine` would open an engine of the library. Open none."""
    name = os.environ.get(_VARIABLE, "").strip().lower() if wanted is None else wanted
    return name != "python" and library.load().functions is not None


def _invalid(name: str, found: str, expected: str) -> InvalidEnvironment:
    return InvalidEnvironment(
        f"the engine {name!r} of file I/O cannot be used: {found}; expected {expected}",
        do=f"unset {_VARIABLE}: the best engine that works is then chosen",
    )
