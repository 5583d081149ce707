# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The engines of the library: io_uring, and threads with blocking system calls (csrc/accel_io.h)."""

from __future__ import annotations

import errno
import os
from ctypes import byref, c_void_p
from typing import Any

from accel_ops import binding
from accel_ops.io.requests import EngineOptions, Request, Result

_KINDS = {"uring": binding.URING, "threads": binding.THREADS}


class NativeEngine:
    """An engine of the library. Raises OSError where the system has none of that name for this process."""

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

    def submit(self, request: Request) -> int:
        """Start a request; see `Engine`."""
        number: int = self._functions.accel_io_submit(self._engine, byref(_as_structure(request)))
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def wait(self, number: int, timeout: int) -> Result | None:
        """Wait for a request; see `Engine`. Raises OSError (ESRCH) for an unknown one."""
        result = binding.IoResult()
        error = self._functions.accel_io_wait(self._engine, number, timeout, byref(result))
        if error == errno.ETIMEDOUT:
            return None
        if error:
            raise OSError(error, f"request {number} is unknown")
        return Result(result.done, result.error, result.error_offset)

    def forget(self, number: int) -> None:
        """Delete the result; see `Engine`."""
        self._functions.accel_io_forget(self._engine, number)

    def progress(self, number: int) -> int:
        """Return transferred bytes; see `Engine`."""
        moved: int = self._functions.accel_io_progress(self._engine, number)
        return max(0, moved)

    def cancel(self, number: int) -> None:
        """Cancel a request; see `Engine`."""
        self._functions.accel_io_cancel(self._engine, number)

    def pause(self, timeout: int) -> bool:
        """Start no further block; see `Engine`."""
        return bool(self._functions.accel_io_pause(self._engine, timeout) == 0)

    def resume(self) -> None:
        """Continue; see `Engine`."""
        self._functions.accel_io_resume(self._engine)

    def close(self, timeout: int) -> bool:
        """End the engine; see `Engine`."""
        if not self._engine:
            return True
        if self._functions.accel_io_close(self._engine, timeout):
            return False
        self._engine = c_void_p()
        return True

    def abandon(self) -> None:
        """Close inherited descriptors; see `Engine`."""
        if self._engine:
            self._functions.accel_io_abandon(self._engine)
            self._engine = c_void_p()


def run(functions: Any, request: Request) -> Result:
    """Carry out a request on the calling thread, without an engine."""
    result = binding.IoResult()
    functions.accel_io_run(byref(_as_structure(request)), byref(result))
    return Result(result.done, result.error, result.error_offset)


def inspect(functions: Any, fd: int) -> tuple[int, int, int]:
    """Return mode, and the alignments of memory and offset that O_DIRECT demands of the file; both 0: it has none."""
    file = binding.IoFile()
    if error := functions.accel_io_inspect(fd, byref(file)):
        raise OSError(error, os.strerror(error))
    return file.mode, file.memory_alignment, file.offset_alignment


def _as_structure(request: Request) -> binding.IoRequest:
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
