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
from collections import deque
from ctypes import byref, c_void_p
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from accel_core.errors import InvalidEnvironment
from accel_ops.host import binding, library


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


@dataclass(frozen=True)
class AioRequest:
    """A transfer between memory at an address and an open file. The caller keeps both until it has ended."""

    fd: int
    write: bool
    address: int
    size: int
    offset: int
    direct: bool = False
    memory_alignment: int = 0
    offset_alignment: int = 0


@dataclass(frozen=True)
class AioResult:
    """How a request ended: `done` bytes from its first on were transferred; `error` is 0 or a value of errno."""

    done: int
    error: int
    error_offset: int


_KINDS = {"uring": binding.URING, "threads": binding.THREADS}


class NativeEngine:
    """An engine of the library. Raises OSError where the system has none of that name for this process.

    name:   `uring`, `threads` or, of `PythonEngine`, `python`.
    reason: why it is this one; a sentence.
    Times are in milliseconds; a negative one is no limit.
    """

    def __init__(self, functions: Any, name: str, reason: str, options: EngineOptions) -> None:
        self.name, self.reason = name, reason
        self._functions = functions
        self._engine = c_void_p()
        given = binding.IoOptions(
            options.block_size,
            options.fault_seed,
            _KINDS[name],
            min(options.depth, 2**31 - 1),
            min(options.workers, 2**31 - 1),
            options.fault_rate,
        )
        if error := functions.accel_io_open(byref(given), byref(self._engine)):
            raise OSError(error, os.strerror(error))

    def submit(self, request: AioRequest) -> int:
        """Start a request; returns its number. Raises OSError where it cannot be started."""
        number: int = self._functions.accel_io_submit(self._engine, byref(_as_structure(request)))
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def wait(self, number: int, timeout: int) -> AioResult | None:
        """Wait for the end of a request; None: it has not ended. Raises OSError (ESRCH) for an unknown one."""
        result = binding.IoResult()
        error = self._functions.accel_io_wait(self._engine, number, timeout, byref(result))
        if error == errno.ETIMEDOUT:
            return None
        if error:
            raise OSError(error, f"request {number} is unknown")
        return AioResult(result.done, result.error, result.error_offset)

    def forget(self, number: int) -> None:
        """Delete what is known of a request that has ended."""
        self._functions.accel_io_forget(self._engine, number)

    def progress(self, number: int) -> int:
        """Return the bytes that a request has transferred so far."""
        moved: int = self._functions.accel_io_progress(self._engine, number)
        return max(0, moved)

    def cancel(self, number: int) -> None:
        """Start no further block of the request. It ends, with ECANCELED, once those in flight have."""
        self._functions.accel_io_cancel(self._engine, number)

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
    file = binding.IoFile()
    if error := library.load().functions.accel_io_inspect(fd, byref(file)):
        raise OSError(error, os.strerror(error))
    return file.mode, file.memory_alignment, file.offset_alignment


def _as_structure(request: AioRequest) -> binding.IoRequest:
    flags = binding.IO_DIRECT if request.direct else 0
    if request.write:
        flags |= binding.IO_WRITE | binding.IO_RESERVE
    return binding.IoRequest(
        request.address,
        request.size,
        request.offset,
        request.fd,
        flags,
        request.memory_alignment,
        request.offset_alignment,
    )


_MOST_THREADS = 8
#: Retries of one system call that transferred nothing, after which its error is reported.
_RETRIES = 10000
_END_OF_FILE = getattr(errno, "ENODATA", errno.EIO)


@dataclass
class _QueuedTransfer:
    request: AioRequest
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

    def result(self) -> AioResult:
        if self.error:
            return AioResult(self.error_at, self.error, self.request.offset + self.error_at)
        return AioResult(self.request.size, 0, -1)


class PythonEngine:
    """An engine of Python threads; they start with the first requests."""

    name = "python"

    def __init__(self, reason: str, options: EngineOptions) -> None:
        self.reason = reason
        self._block_size = max(4096, options.block_size)
        self._most = max(1, min(_MOST_THREADS, options.depth * options.workers))
        self._changed = threading.Condition()
        self._jobs: dict[int, _QueuedTransfer] = {}
        self._queue: deque[_QueuedTransfer] = deque()
        self._threads: list[threading.Thread] = []
        self._numbers = self._in_flight = 0
        self._paused = self._stopping = False

    def submit(self, request: AioRequest) -> int:
        """Start a request; see `NativeEngine`."""
        with self._changed:
            self._numbers += 1
            job = self._jobs[self._numbers] = _QueuedTransfer(request)
            if not job.ended():
                self._queue.append(job)
            blocks = self._in_flight + request.size // self._block_size + 1
            while len(self._threads) < min(self._most, blocks):
                self._threads.append(threading.Thread(target=self._work, name="accel-io", daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()
            return self._numbers

    def wait(self, number: int, timeout: int) -> AioResult | None:
        """Wait for a request; see `NativeEngine`."""
        with self._changed:
            job = self._jobs.get(number)
            if job is None:
                raise OSError(errno.ESRCH, f"request {number} is unknown")
            if not self._changed.wait_for(job.ended, None if timeout < 0 else timeout / 1000):
                return None
            return job.result()

    def forget(self, number: int) -> None:
        """Delete the result; see `NativeEngine`."""
        with self._changed:
            self._jobs.pop(number, None)

    def progress(self, number: int) -> int:
        """Return transferred bytes; see `NativeEngine`."""
        with self._changed:
            return self._jobs[number].moved if number in self._jobs else 0

    def cancel(self, number: int) -> None:
        """Cancel a request; see `NativeEngine`."""
        with self._changed:
            job = self._jobs.get(number)
            if job and not job.exhausted():
                job.fail(errno.ECANCELED, job.next)
            self._changed.notify_all()

    def pause(self, timeout: int) -> bool:
        """Start no further block; see `NativeEngine`."""
        with self._changed:
            self._paused = True
            return self._changed.wait_for(
                lambda: not self._in_flight, None if timeout < 0 else timeout / 1000
            )

    def resume(self) -> None:
        """Continue; see `NativeEngine`."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def close(self, timeout: int) -> bool:
        """End the engine; see `NativeEngine`."""
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

    def _take(self) -> tuple[_QueuedTransfer, int, int] | None:
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


def run(request: AioRequest, native: bool) -> AioResult:
    """Carry out a request on the calling thread, without an engine."""
    if native:
        result = binding.IoResult()
        library.load().functions.accel_io_run(byref(_as_structure(request)), byref(result))
        return AioResult(result.done, result.error, result.error_offset)
    moved, error = _transfer(request, 0, request.size)
    return AioResult(moved, error, request.offset + moved if error else -1)


def _transfer(request: AioRequest, begin: int, end: int) -> tuple[int, int]:
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
    """Whether `open_engine` with this argument gives an engine of the library. Opens none."""
    name = os.environ.get(_VARIABLE, "").strip().lower() if wanted is None else wanted
    return name != "python" and library.load().functions is not None


def _invalid(name: str, found: str, expected: str) -> InvalidEnvironment:
    return InvalidEnvironment(
        f"the engine {name!r} of file I/O cannot be used: {found}; expected {expected}",
        do=f"unset {_VARIABLE}: the best engine that works is then chosen",
    )
