# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One transfer between host memory and a file, from its start to its result."""

from __future__ import annotations

import enum
import os
import threading
import time

from accel_ops.io import failures, live
from accel_ops.io.files import OpenFile
from accel_ops.io.memory import HostMemory
from accel_ops.io.requests import Engine, Request, Result

#: Milliseconds of one wait of the engine; signals (Ctrl-C) are handled between two.
_SLICE = 200


class Durability(str, enum.Enum):
    """What has reached the device when a write has ended.

    none: nothing for certain; data: the bytes (fdatasync); full: the bytes, the file's metadata and a new file's name.
    """

    NONE = "none"
    DATA = "data"
    FULL = "full"


class Transfer:
    """A request of a session. It holds memory and descriptor until the request has ended, whoever waits for it."""

    def __init__(
        self,
        engine: Engine | None,
        file: OpenFile,
        memory: HostMemory,
        request: Request,
        durability: Durability,
    ) -> None:
        self.file, self.memory, self.request = file, memory, request
        self._durability = durability
        self._engine = engine
        self._lock = threading.Lock()
        self._result: Result | None = None
        self._number = 0
        self._delivered = False
        self._lost = False

    def start(self) -> None:
        """Give the request to the engine; raises OSError."""
        if self._engine is not None:
            with live.starting(self):
                self._number = self._engine.submit(self.request)

    def finish(self, result: Result) -> None:
        """Record the result of a request that was carried out without an engine."""
        self._result = result

    def ended(self, timeout: float | None) -> bool:
        """Wait until the request has ended, well or not, at most `timeout` seconds; return whether it has.

        Interruptible. The memory is not used any more afterwards.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE if until is None else int(1000 * (until - time.monotonic()))
            if self._ended(max(0, min(left, _SLICE))):
                return True
            if left <= 0:
                return False

    def wait(self, timeout: float | None = None) -> int:
        """Return the bytes that were transferred; raises TransferFailed (an OSError), TimeoutError after `timeout`."""
        if not self.ended(timeout):
            raise TimeoutError(f"{self.file.name}: not transferred within {timeout} s")
        result = self._result
        if result is None:
            raise failures.lost_by_fork(*self._facts())
        try:
            if result.error:
                raise failures.failed(*self._facts(), result)
            self._deliver()
        finally:
            self._release()
        return result.done

    def progress(self) -> int:
        """Return the bytes that have been transferred so far."""
        if self._result is not None:
            return self._result.done
        return 0 if self._lost or self._engine is None else self._engine.progress(self._number)

    def cancel(self) -> None:
        """Transfer no further block. `wait` then raises TransferFailed (ECANCELED), unless all bytes were in flight."""
        if self._result is None and not self._lost and self._engine is not None:
            self._engine.cancel(self._number)

    def lose(self) -> None:
        """In a child of fork(): the transfer is the parent's."""
        self._lock = threading.Lock()
        if self._result is None:
            self._lost = True
            self._release()

    def uses(self, engine: Engine) -> bool:
        """Whether the request was given to this engine."""
        return self._engine is engine

    def overlaps(self, first: int, last: int) -> bool:
        """Whether the request reads or writes memory in this range of addresses."""
        return self.request.address < last and first < self.request.address + self.request.size

    def _ended(self, timeout: int) -> bool:
        if self._result is not None or self._lost:
            return True
        if self._engine is None:
            return False
        # The engine keeps the result until it is recorded: an interrupt may come at any point.
        try:
            result = self._engine.wait(self._number, timeout)
        except ProcessLookupError:  # another thread has recorded it meanwhile
            return self._result is not None
        if result is None:
            return False
        with self._lock:
            if self._result is None:
                self._result = result
                self._engine.forget(self._number)
        live.ended(self)
        return True

    def _deliver(self) -> None:
        """Do, once, what follows a transfer that has succeeded."""
        with self._lock:
            if self._delivered:
                return
            if self.request.write:
                synchronize(self.file, self._durability)
            else:
                self.memory.deliver()
            self._delivered = True

    def __del__(self) -> None:
        self.file.close()

    def _release(self) -> None:
        self.file.close()

    def _facts(self) -> tuple[str, bool, int, int]:
        return self.file.name, self.request.write, self.request.size, self.request.offset


def synchronize(file: OpenFile, durability: Durability) -> None:
    """Have the device store what was written, as far as `durability` says; raises OSError."""
    if durability is Durability.DATA:
        getattr(os, "fdatasync", os.fsync)(file.fd)
    elif durability is Durability.FULL:
        os.fsync(file.fd)
        if file.created:
            synchronize_folder(os.path.dirname(file.name))


def synchronize_folder(path: str) -> None:
    """Have the device store the names in a folder."""
    folder = os.open(path or os.curdir, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
