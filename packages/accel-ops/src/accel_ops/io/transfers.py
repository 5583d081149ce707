# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Transfers between the memory of a tensor and a file, from their start to their result or error."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable

import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.errors import TransferFailed
from accel_ops.host.c_interface import IoRequest, IoResult
from accel_ops.io.engines import Engine
from accel_ops.io.files import OpenFile
from accel_ops.memory import MEMORY


def check(tensor: torch.Tensor, *, write: bool) -> None:
    """Raise InvalidOpArgument for a tensor that has no memory to read from or write to."""
    if not isinstance(tensor, torch.Tensor):
        raise _invalid(f"{type(tensor).__name__}", "a tensor")
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
        raise _invalid(_shown(tensor), "a strided tensor with memory")
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size
    )
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size() if tensor.numel() else 0
    if needed > tensor.untyped_storage().nbytes():
        raise _invalid(f"{_shown(tensor)}, whose memory was freed", "a tensor with its memory")
    if tensor.device.type == "cpu" and tensor.numel() and not tensor.data_ptr():
        raise _invalid(
            f"{_shown(tensor)}, a {type(tensor).__name__} without memory of its own", "a plain tensor"
        )
    overlapping = any(
        size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    if not write and overlapping and tensor.numel():
        raise _invalid(
            f"{_shown(tensor)}, several elements of which are at one address", "one address for each element"
        )


def is_plain(tensor: torch.Tensor) -> bool:
    """Return True if the bytes of a host tensor are those of its elements, in order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def host_memory(tensor: torch.Tensor, *, write: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the memory of a host tensor, or a contiguous copy and the tensor to which it is to be copied."""
    tensor = tensor.detach()
    if is_plain(tensor):
        return tensor, None
    if write:
        return tensor.resolve_conj().resolve_neg().contiguous(), None
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device), tensor


def _shown(tensor: torch.Tensor) -> str:
    return f"a {tensor.device.type} tensor of shape {tuple(tensor.shape)}, {tensor.layout}"


def _invalid(found: str, expected: str) -> InvalidOpArgument:
    return InvalidOpArgument(
        f"a file cannot be read into, or written from, this object: {found}; expected {expected}",
        do="pass a tensor that is allocated, dense, and on the host or a device",
    )


_END_OF_FILE = getattr(errno, "ENODATA", errno.EIO)
_ADVICE = {
    errno.ENOSPC: "free space on the file system, or use another; what was written remains in the file",
    errno.EDQUOT: "raise the quota, or use another file system; what was written remains in the file",
    errno.EFBIG: "raise the limit of this process (ulimit -f), or write less to one file",
    errno.EIO: "the device or its file system failed: see the kernel's log (dmesg), and restore the file from a copy",
    _END_OF_FILE: "read no more than the file has, or check whether its writer has finished",
    errno.EBADF: "keep the descriptor open, with the right to read or write, until the transfer is submitted",
}


def failed(name: str, write: bool, size: int, offset: int, result: IoResult) -> TransferFailed:
    """Return the error of a request that ended with an errno."""
    verb, preposition = ("written", "to") if write else ("read", "from")
    reason = os.strerror(result.error)
    if result.error == _END_OF_FILE and not write:
        reason = "the file ends"
    return TransferFailed(
        f"{size} bytes at offset {offset} cannot be {verb} {preposition} {name}: [Errno {result.error}] "
        f"{reason} at offset {result.error_offset}, after {result.done} bytes",
        do=_ADVICE.get(result.error, "see the description of the error's number in errno(3)"),
        number=result.error,
        name=name,
        offset=result.error_offset,
        done=result.done,
    )


def lost_by_fork(name: str, write: bool, size: int, offset: int) -> TransferFailed:
    """Return the error of a request that this process has inherited by fork()."""
    return TransferFailed(
        f"a transfer of {size} bytes {'to' if write else 'from'} {name} cannot be awaited here: it "
        "was started before fork(), by the parent process",
        do="wait for transfers in the process that starts them",
        number=errno.ECANCELED,
        name=name,
        offset=offset,
    )


def differs(name: str, offset: int, size: int) -> TransferFailed:
    """Return the error of a validation that found other bytes in the file than in the tensor."""
    return TransferFailed(
        f"validation failed: {size} bytes at offset {offset} of {name} are not those of the tensor: a "
        "difference between the tensor and the file, read again through the page cache",
        do="check that nothing else writes to the file or the tensor; otherwise the device is faulty",
        name=name,
        offset=offset,
    )


_transfers: set[Transfer] = set()
_lock = threading.RLock()


def such_as(condition: Callable[[Transfer], bool]) -> list[Transfer]:
    """Return the transfers for which the condition holds."""
    with _lock:
        return [transfer for transfer in _transfers if condition(transfer)]


def await_memory(first: int, last: int) -> None:
    """Wait until no transfer of this process uses memory in this range of addresses."""
    for transfer in such_as(lambda transfer: transfer.overlaps(first, last)):
        transfer.ended(None)


def hold() -> None:
    """Before fork(): no transfer starts until `release`."""
    _lock.acquire()


def release() -> None:
    """After fork(), in the parent."""
    _lock.release()


def lose_all() -> None:
    """After fork(), in the child: the transfers are the parent's."""
    global _lock
    _lock = threading.RLock()
    for transfer in _transfers:
        transfer.lose()
    _transfers.clear()


MEMORY.before_free = await_memory


#: Milliseconds of one wait of the engine; signals (Ctrl-C) are handled between two.
_SLICE = 200


class Transfer:
    """A request of a session. It holds memory and descriptor until the request has ended, even if nobody waits for it.

    destination: receives a copy of what was read, if it is not None.
    """

    def __init__(
        self,
        engine: Engine | None,
        file: OpenFile,
        memory: torch.Tensor,
        request: IoRequest,
        destination: torch.Tensor | None = None,
    ) -> None:
        self.file, self.memory, self.request = file, memory, request
        self._destination = destination
        self._engine = engine
        self._lock = threading.Lock()
        self._result: IoResult | None = None
        self._number = 0
        self._lost = False

    def start(self) -> None:
        """Give the request to the engine; raises OSError."""
        if self._engine is not None:
            with _lock:  # which a fork() waits for
                self._number = self._engine.submit(self.request)
                _transfers.add(self)

    def finish(self, result: IoResult) -> None:
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
            raise lost_by_fork(*self._facts())
        try:
            if result.error:
                raise failed(*self._facts(), result)
            self._deliver()
        finally:
            self.file.close()
        return int(result.done)

    def lose(self) -> None:
        """In a child of fork(): the transfer is the parent's."""
        self._lock = threading.Lock()
        if self._result is None:
            self._lost = True
            self.file.close()

    def uses(self, engine: Engine) -> bool:
        """Return True for the engine that has the request."""
        return self._engine is engine

    def overlaps(self, first: int, last: int) -> bool:
        """Return True if the request reads or writes memory in this range of addresses."""
        begin = self.memory.data_ptr()
        return begin < last and first < begin + self.memory.nbytes

    def _ended(self, timeout: int) -> bool:
        if self._result is not None or self._lost:
            return True
        if self._engine is None:
            return False
        # The engine keeps the result until it is recorded: an interrupt may come at any point.
        try:
            result = self._engine.wait(self._number, timeout)
        except ProcessLookupError:  # another thread has recorded it
            return self._result is not None
        if result is None:
            return False
        with self._lock:
            if self._result is None:
                self._result = result
                self._engine.forget(self._number)
        with _lock:
            _transfers.discard(self)
        return True

    def _deliver(self) -> None:
        """Copy what was read to its destination, once."""
        with self._lock:
            destination, self._destination = self._destination, None
            if destination is not None:
                with torch.no_grad():
                    destination.copy_(self.memory)

    def __del__(self) -> None:
        self.file.close()

    def _facts(self) -> tuple[str, bool, int, int]:
        return self.file.name, self.request.writes, self.request.size, self.request.offset
