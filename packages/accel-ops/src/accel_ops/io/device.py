# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Transfers of tensors on a device, through a few page-locked chunks: copies and file I/O overlap.

Copies are torch's own, so that they work on every device. They run on one thread for each session, which synchronizes
with the device: a copy follows all work that was queued before the transfer was submitted.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Protocol

import torch

from accel_ops.errors import TransferFailed
from accel_ops.io import failures
from accel_ops.io.files import OpenFile
from accel_ops.io.memory import HostMemory, is_plain
from accel_ops.io.requests import Result
from accel_ops.io.transfer import Durability, Transfer, synchronize
from accel_ops.pinned_memory import MEMORY

_CHUNK = 4 << 20
_CHUNKS = 4


class Session(Protocol):
    """What is needed of a `session.Session` here."""

    devices: DeviceThread

    def start(
        self, file: OpenFile, host: HostMemory, write: bool, offset: int, durability: Durability
    ) -> Transfer:
        """Start a transfer of host memory."""
        ...


class DeviceThread:
    """The thread of a session on which device tensors are copied; started at first use."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self.chunks: list[torch.Tensor] = []

    def submit(self, transfer: DeviceTransfer) -> Future[int]:
        """Run a transfer on the thread."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="accel-io-device")
        return self._executor.submit(transfer.run)

    def close(self) -> None:
        """Complete what was submitted, and end the thread."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


class DeviceTransfer:
    """A transfer between a tensor on a device and a file, with the methods of `Transfer`."""

    def __init__(
        self,
        session: Session,
        tensor: torch.Tensor,
        file: OpenFile,
        *,
        write: bool,
        offset: int,
        durability: Durability,
    ) -> None:
        self.file, self._session, self._tensor = file, session, tensor.detach()
        self._write, self._offset, self._durability = write, offset, durability
        self._size, self._done, self._cancelled = tensor.nbytes, 0, False
        # What the caller has queued on the device must precede our copies, which another thread issues.
        _synchronize(tensor.device)
        self._thread = session.devices
        self._future = self._thread.submit(self)

    def ended(self, timeout: float | None) -> bool:
        """Wait until the transfer has ended, well or not; return whether it has."""
        try:
            self._future.exception(timeout)
        except FutureTimeoutError:
            return False
        return True

    def wait(self, timeout: float | None = None) -> int:
        """Return the bytes that were transferred; raises as `Transfer.wait`."""
        if self._thread is not self._session.devices:
            raise failures.lost_by_fork(self.file.name, self._write, self._size, self._offset)
        if not self.ended(timeout):
            raise TimeoutError(f"{self.file.name}: not transferred within {timeout} s")
        return self._future.result()

    def progress(self) -> int:
        """Return the bytes that have been transferred so far."""
        return self._done

    def cancel(self) -> None:
        """Transfer no further chunk."""
        self._cancelled = True

    def run(self) -> int:
        """On the thread of the session: transfer everything."""
        try:
            (self._write_chunks if self._write else self._read_chunks)()
            if self._write:
                synchronize(self.file, self._durability)
            return self._size
        finally:
            self.file.close()

    def _write_chunks(self) -> None:
        tensor = self._tensor.resolve_conj().resolve_neg()
        flat = tensor.contiguous().view(-1)
        in_flight: deque[tuple[Transfer, torch.Tensor]] = deque()
        free = self._chunks()
        try:
            for begin, end in self._parts(flat):
                if not free:
                    free.append(self._joined(in_flight))
                chunk = free.pop()
                part = chunk[: (end - begin) * flat.element_size()].view(flat.dtype)
                part.copy_(flat[begin:end])
                in_flight.append((self._started(part, begin * flat.element_size()), chunk))
            while in_flight:
                self._joined(in_flight)
        finally:
            _abandon(in_flight)

    def _read_chunks(self) -> None:
        tensor = self._tensor
        plain = is_plain(tensor)
        target = tensor if plain else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        flat = target.view(-1)
        in_flight: deque[tuple[Transfer, torch.Tensor]] = deque()
        positions: deque[tuple[int, int]] = deque()
        free = self._chunks()

        def deliver() -> None:
            begin, end = positions.popleft()
            chunk = self._joined(in_flight)
            flat[begin:end].copy_(chunk[: (end - begin) * flat.element_size()].view(flat.dtype))
            free.append(chunk)

        try:
            for begin, end in self._parts(flat):
                if not free:
                    deliver()
                chunk = free.pop()
                part = chunk[: (end - begin) * flat.element_size()].view(flat.dtype)
                in_flight.append((self._started(part, begin * flat.element_size()), chunk))
                positions.append((begin, end))
            while in_flight:
                deliver()
        finally:
            _abandon(in_flight)
        if not plain:
            with torch.no_grad():
                tensor.copy_(target)
        _synchronize(tensor.device)

    def _chunks(self) -> list[torch.Tensor]:
        if not self._thread.chunks:
            self._thread.chunks = [MEMORY.allocate(_CHUNK, torch.uint8) for _ in range(_CHUNKS)]
        return list(self._thread.chunks)

    def _parts(self, flat: torch.Tensor) -> list[tuple[int, int]]:
        step = _CHUNK // flat.element_size()
        return [(begin, min(begin + step, flat.numel())) for begin in range(0, flat.numel(), step)]

    def _started(self, part: torch.Tensor, position: int) -> Transfer:
        if self._cancelled:
            raise self._cancellation()
        shared = OpenFile(
            self.file.name,
            os.dup(self.file.fd),
            self.file.direct,
            self.file.memory_alignment,
            self.file.offset_alignment,
        )
        return self._session.start(
            shared, HostMemory(part), self._write, self._offset + position, Durability.NONE
        )

    def _joined(self, in_flight: deque[tuple[Transfer, torch.Tensor]]) -> torch.Tensor:
        transfer, chunk = in_flight.popleft()
        try:
            self._done += transfer.wait()
        except TransferFailed as error:
            error.done += self._done
            raise
        return chunk

    def _cancellation(self) -> TransferFailed:
        result = Result(self._done, errno.ECANCELED, self._offset + self._done)
        return failures.failed(self.file.name, self._write, self._size, self._offset, result)


def _abandon(in_flight: deque[tuple[Transfer, torch.Tensor]]) -> None:
    """After an error: the chunks may be used again once nothing is in flight."""
    for transfer, _ in in_flight:
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
