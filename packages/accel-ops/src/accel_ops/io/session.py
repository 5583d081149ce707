# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Transfers that share an engine.

Fork: transfers pause until parent and child have parted. The child has none of them: it opens its own engines at its
first transfer. Exit: transfers that nobody has awaited are completed, for 30 s at most.

Tensors on a device go through a few page-locked chunks, so that copies and file I/O overlap. Copies are torch's own,
which work on every device. They run on one thread for each session, which synchronizes with the device: a copy follows
all work that was queued before the transfer was submitted.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import threading
import time
import traceback
import warnings
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import NamedTuple

import torch

from accel_ops.errors import TransferFailed
from accel_ops.host.c_interface import IO_DIRECT, IO_RESERVE, IO_WRITE, IoRequest
from accel_ops.io import engines, transfers
from accel_ops.io.engines import Engine, EngineOptions, open_engine, uses_library
from accel_ops.io.files import Name, OpenFile, open_file
from accel_ops.io.transfers import Transfer, is_plain, lost_by_fork
from accel_ops.memory import MEMORY

#: Requests up to this size that are awaited immediately run on the caller's thread.
_INLINE = 1 << 20
#: Bytes and number of the chunks for tensors on a device.
_CHUNK = 4 << 20
_CHUNKS = 4
#: Milliseconds for transfers in flight, before a fork and at exit.
_DRAIN = 30_000
#: The last offset in a file.
_LAST = 2**63 - 1

_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """An engine and its transfers. The engine is opened with the first transfer that needs one."""

    def __init__(self, options: EngineOptions, engine: str | None = None) -> None:
        self.options = options
        self._wanted = engine
        self._engine: Engine | None = None
        self._closing: weakref.finalize | None = None  # type: ignore[type-arg]
        self._lock = threading.Lock()
        self._without_device_work()
        _SESSIONS.add(self)

    def _without_device_work(self) -> None:
        """Let the next transfer of a device start a thread."""
        self.devices = ThreadPoolExecutor(1, thread_name_prefix="accel-io-device")
        self.chunks: list[torch.Tensor] = []

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
        self, tensor: torch.Tensor, name: Name, *, write: bool, offset: int = 0
    ) -> Transfer | DeviceTransfer:
        """Start a transfer between a tensor and a file; raises OSError, InvalidOpArgument, ValueError.

        The tensor must not be changed, or read, before the transfer has ended.
        """
        transfers.check(tensor, write=write)
        file = self._opened(tensor, name, write, offset)
        try:
            if tensor.device.type != "cpu":
                return DeviceTransfer(self, tensor, file, write=write, offset=offset)
            memory, destination = transfers.host_memory(tensor, write=write)
            return self.start(file, memory, write, offset, destination)
        except BaseException:
            file.close()
            raise

    def run(self, tensor: torch.Tensor, name: Name, *, write: bool, offset: int = 0) -> int:
        """Transfer at once; returns bytes. Raises what `submit` and `Transfer.wait` raise."""
        if tensor.nbytes > _INLINE or tensor.device.type != "cpu":
            return self.submit(tensor, name, write=write, offset=offset).wait()
        transfers.check(tensor, write=write)
        file = self._opened(tensor, name, write, offset)
        memory, destination = transfers.host_memory(tensor, write=write)
        request = _request(file, memory, write, offset)
        transfer = Transfer(None, file, memory, request, destination)
        transfer.finish(engines.run(transfer.request, self._native()))
        return transfer.wait()

    def start(
        self,
        file: OpenFile,
        memory: torch.Tensor,
        write: bool,
        offset: int,
        destination: torch.Tensor | None = None,
    ) -> Transfer:
        """Start a transfer of contiguous host memory on an open file, which the transfer closes."""
        request = _request(file, memory, write, offset)
        transfer = Transfer(self.engine, file, memory, request, destination)
        transfer.start()
        return transfer

    def close(self) -> None:
        """Wait for all transfers, and end the engine. The next transfer opens another."""
        with self._lock:
            closing, self._engine, self._closing = self._closing, None, None
        self.devices.shutdown()
        self._without_device_work()
        if closing is not None:
            closing()

    def _opened(self, tensor: torch.Tensor, name: Name, write: bool, offset: int) -> OpenFile:
        if not 0 <= offset <= _LAST - tensor.nbytes:
            raise ValueError(f"file_offset must be from 0 to 2**63 - 1 less the tensor's bytes: {offset}")
        return open_file(name, write=write, size=tensor.nbytes, native=self._native())

    def _native(self) -> bool:
        """Return True if the library transfers. Open no engine."""
        return uses_library(self._wanted) if self._engine is None else self._engine.name != "python"

    def _lose(self) -> None:
        """In a child of fork()."""
        self._lock = threading.Lock()
        engine, self._engine = self._engine, None
        self._without_device_work()
        if self._closing is not None:
            self._closing.detach()
        if engine is not None:
            engine.abandon()


def _request(file: OpenFile, memory: torch.Tensor, write: bool, offset: int) -> IoRequest:
    flags = IO_DIRECT * file.direct | (IO_WRITE | IO_RESERVE) * write
    alignments = file.memory_alignment, file.offset_alignment
    return IoRequest(memory.data_ptr(), memory.nbytes, offset, file.fd, flags, *alignments)


def _close(engine: Engine) -> None:
    for transfer in transfers.such_as(lambda transfer: transfer.uses(engine)):
        transfer.ended(None)
    engine.close(-1)


def _before_fork() -> None:
    transfers.hold()
    until = time.monotonic() + _DRAIN / 1000
    for session in list(_SESSIONS):
        if session._engine is not None:
            session._engine.pause(max(0, int(1000 * (until - time.monotonic()))))


def _after_fork_in_parent() -> None:
    for session in list(_SESSIONS):
        if session._engine is not None:
            session._engine.resume()
    transfers.release()


def _after_fork_in_child() -> None:
    transfers.lose_all()
    for session in list(_SESSIONS):
        session._lose()


def _at_exit() -> None:
    left = transfers.such_as(lambda transfer: True)
    until = time.monotonic() + _DRAIN / 1000
    missing = [
        transfer.file.name for transfer in left if not transfer.ended(max(0.0, until - time.monotonic()))
    ]
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


class _InFlight(NamedTuple):
    """A transfer with a chunk, and the part of the tensor that it is read for."""

    transfer: Transfer
    chunk: torch.Tensor
    into: torch.Tensor | None = None


class DeviceTransfer:
    """A transfer between a tensor on a device and a file, with the methods of `Transfer`."""

    def __init__(
        self, session: Session, tensor: torch.Tensor, file: OpenFile, *, write: bool, offset: int
    ) -> None:
        self.file, self._session, self._tensor = file, session, tensor.detach()
        self._write, self._offset = write, offset
        self._size, self._done = tensor.nbytes, 0
        # What the caller has queued on the device must precede our copies, which another thread issues.
        _synchronize(tensor.device)
        self._process = os.getpid()
        self._future = session.devices.submit(self.run)

    def ended(self, timeout: float | None) -> bool:
        """Wait until the transfer has ended, well or not; return whether it has."""
        try:
            self._future.exception(timeout)
        except FutureTimeoutError:
            return False
        return True

    def wait(self, timeout: float | None = None) -> int:
        """Return the bytes that were transferred; raises as `Transfer.wait`."""
        if self._process != os.getpid():
            raise lost_by_fork(self.file.name, self._write, self._size, self._offset)
        if not self.ended(timeout):
            raise TimeoutError(f"{self.file.name}: not transferred within {timeout} s")
        return self._future.result()

    def run(self) -> int:
        """On the thread of the session: transfer everything."""
        try:
            if self._write:
                self._transfer(self._tensor.resolve_conj().resolve_neg().contiguous().view(-1))
            else:
                self._read(self._tensor)
            return self._size
        except BaseException as error:
            # The future keeps the error, and its frames the tensors.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            self.file.close()
            del self._tensor

    def _read(self, tensor: torch.Tensor) -> None:
        plain = is_plain(tensor)
        target = tensor if plain else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        self._transfer(target.view(-1))
        if not plain:
            with torch.no_grad():
                tensor.copy_(target)
        _synchronize(tensor.device)

    def _transfer(self, flat: torch.Tensor) -> None:
        """Transfer contiguous elements, in chunks of which a few are in flight."""
        in_flight: deque[_InFlight] = deque()
        free = self._chunks()
        try:
            for begin, end in self._parts(flat):
                if not free:
                    free.append(self._joined(in_flight))
                chunk, part = free.pop(), flat[begin:end]
                staged = chunk[: part.nbytes].view(flat.dtype)
                if self._write:
                    staged.copy_(part)
                transfer = self._started(staged, begin * flat.element_size())
                in_flight.append(_InFlight(transfer, chunk, None if self._write else part))
            while in_flight:
                self._joined(in_flight)
        finally:
            _abandon(in_flight)

    def _chunks(self) -> list[torch.Tensor]:
        if not self._session.chunks:
            self._session.chunks = [MEMORY.allocate(_CHUNK, torch.uint8) for _ in range(_CHUNKS)]
        return list(self._session.chunks)

    def _parts(self, flat: torch.Tensor) -> list[tuple[int, int]]:
        step = _CHUNK // flat.element_size()
        return [(begin, min(begin + step, flat.numel())) for begin in range(0, flat.numel(), step)]

    def _started(self, part: torch.Tensor, position: int) -> Transfer:
        shared = dataclasses.replace(self.file, fd=os.dup(self.file.fd))
        return self._session.start(shared, part, self._write, self._offset + position)

    def _joined(self, in_flight: deque[_InFlight]) -> torch.Tensor:
        """Await the oldest transfer, and copy what it has read to the tensor; returns its chunk."""
        transfer, chunk, into = in_flight.popleft()
        try:
            self._done += transfer.wait()
        except TransferFailed as error:
            error.done += self._done
            raise
        if into is not None:
            into.copy_(chunk[: into.nbytes].view(into.dtype))
        return chunk


def _abandon(in_flight: deque[_InFlight]) -> None:
    """After an error: the chunks may be used again once nothing is in flight."""
    for transfer, *_ in in_flight:
        transfer.ended(None)
        transfer.file.close()


def _synchronize(device: torch.device) -> None:
    module = getattr(torch, device.type, None)
    call = getattr(module, "synchronize", None)
    if not callable(call):
        return
    try:
        call(device)
    except TypeError:  # of a module with one device
        call()
