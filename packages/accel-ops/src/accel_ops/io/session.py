# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Transfers that share an engine, and what happens to them at fork() and at the end of the process.

Fork: transfers pause until parent and child have parted. The child has none of them: it opens engines of its own at its
first transfer. Exit: transfers that nobody has awaited are completed, for 30 s at most.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref

import torch

from accel_ops import library
from accel_ops.io import device, live, memory, native_engine, python_engine
from accel_ops.io.choice import open_engine, uses_library
from accel_ops.io.files import Name, OpenFile, open_file
from accel_ops.io.memory import HostMemory
from accel_ops.io.requests import Engine, EngineOptions, Request, Result
from accel_ops.io.transfer import Durability, Transfer

#: Requests up to this size that somebody waits for at once are carried out on his thread.
_INLINE = 1 << 20
#: Milliseconds for transfers in flight, before a fork and at exit.
_DRAIN = 30_000

_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """An engine and its transfers. The engine is opened with the first transfer that needs one."""

    def __init__(self, options: EngineOptions, engine: str | None = None) -> None:
        self.options = options
        self._wanted = engine
        self._engine: Engine | None = None
        self._closing: weakref.finalize | None = None  # type: ignore[type-arg]
        self._lock = threading.Lock()
        self.devices = device.DeviceThread()
        _SESSIONS.add(self)

    @property
    def engine(self) -> Engine:
        """The engine; raises InvalidEnvironment if that of ACCEL_IO_ENGINE cannot be used."""
        with self._lock:
            if self._engine is None:
                self._engine = open_engine(self.options, self._wanted)
                self._closing = weakref.finalize(self, _close, self._engine)
                self._closing.atexit = False
            return self._engine

    def submit(
        self,
        tensor: torch.Tensor,
        name: Name,
        *,
        write: bool,
        offset: int = 0,
        durability: Durability = Durability.NONE,
    ) -> Transfer | device.DeviceTransfer:
        """Start a transfer between a tensor and a file; raises OSError, InvalidTensors, ValueError.

        The tensor must not be changed, or read, before the transfer has ended.
        """
        memory.check(tensor, write=write)
        file = self._opened(tensor, name, write, offset)
        try:
            if tensor.device.type != "cpu":
                return device.DeviceTransfer(
                    self, tensor, file, write=write, offset=offset, durability=durability
                )
            return self.start(file, memory.host_memory(tensor, write=write), write, offset, durability)
        except BaseException:
            file.close()
            raise

    def run(
        self,
        tensor: torch.Tensor,
        name: Name,
        *,
        write: bool,
        offset: int = 0,
        durability: Durability = Durability.NONE,
    ) -> int:
        """Transfer at once; returns bytes. Raises what `submit` and `Transfer.wait` raise."""
        if tensor.nbytes > _INLINE or tensor.device.type != "cpu":
            return self.submit(tensor, name, write=write, offset=offset, durability=durability).wait()
        memory.check(tensor, write=write)
        file = self._opened(tensor, name, write, offset)
        host = memory.host_memory(tensor, write=write)
        transfer = Transfer(None, file, host, _request(file, host, write, offset), durability)
        transfer.finish(self._inline(transfer.request))
        return transfer.wait()

    def start(
        self, file: OpenFile, host: HostMemory, write: bool, offset: int, durability: Durability
    ) -> Transfer:
        """Start a transfer on an open file, which the transfer closes."""
        transfer = Transfer(self.engine, file, host, _request(file, host, write, offset), durability)
        transfer.start()
        return transfer

    def close(self) -> None:
        """Wait for all transfers, and end the engine. The next transfer opens another."""
        with self._lock:
            closing, self._engine, self._closing = self._closing, None, None
        self.devices.close()
        if closing is not None:
            closing()

    def _opened(self, tensor: torch.Tensor, name: Name, write: bool, offset: int) -> OpenFile:
        if offset < 0:
            raise ValueError(f"file_offset must not be negative: {offset}")
        return open_file(name, write=write, size=tensor.nbytes, native=self._native())

    def _native(self) -> bool:
        """Whether the library transfers; without opening an engine."""
        return uses_library(self._wanted) if self._engine is None else self._engine.name != "python"

    def _inline(self, request: Request) -> Result:
        if self._native():
            return native_engine.run(library.load().functions, request)
        return python_engine.run(request)

    def _lose(self) -> None:
        """In a child of fork()."""
        self._lock = threading.Lock()
        engine, self._engine = self._engine, None
        self.devices = device.DeviceThread()
        if self._closing is not None:
            self._closing.detach()
        if engine is not None:
            engine.abandon()


def _request(file: OpenFile, host: HostMemory, write: bool, offset: int) -> Request:
    return Request(
        file.fd,
        write,
        host.address,
        host.size,
        offset,
        file.direct,
        file.memory_alignment,
        file.offset_alignment,
    )


def _close(engine: Engine) -> None:
    for transfer in live.such_as(lambda transfer: transfer.uses(engine)):
        transfer.ended(None)
    engine.close(-1)


def _before_fork() -> None:
    live.hold()
    for session in list(_SESSIONS):
        if session._engine is not None:
            session._engine.pause(_DRAIN)


def _after_fork_in_parent() -> None:
    for session in list(_SESSIONS):
        if session._engine is not None:
            session._engine.resume()
    live.release()


def _after_fork_in_child() -> None:
    live.lose_all()
    for session in list(_SESSIONS):
        session._lose()


def _at_exit() -> None:
    left = live.such_as(lambda transfer: True)
    missing = [transfer.file.name for transfer in left if not transfer.ended(_DRAIN / 1000)]
    if missing:
        warnings.warn(
            f"the process ends during transfers to or from {', '.join(sorted(set(missing)))}: "
            "these files are incomplete",
            RuntimeWarning,
            stacklevel=2,
        )


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
