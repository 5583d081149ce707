# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked host memory in whole pages, and exact knowledge of which is alive and which of it is locked.

Where the system refuses the lock (`ulimit -l`) the pages come all the same, with one warning, and are not called
pinned: training goes on with them, and whoever asks may find others.

The pages go with the last tensor that shows them, never before: freeing early gives the memory back to the
machine, and a tensor that is still held then reads zeros instead of what somebody else put there.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import threading
import warnings
import weakref

import torch

from accel_host.aliasing import extent
from accel_host.errors import OutOfPinnedMemory

#: From this size on, huge pages are wished for: two of them.
_HUGE = 4 << 20


class LockedMemory:
    """The locked pages of a process by address. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._blocks: dict[int, weakref.ReferenceType[mmap.mmap]] = {}
        self._bounds: dict[int, int] = {}
        self._locked: set[int] = set()
        self._starts: list[int] = []
        self._lock = threading.RLock()

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """`count` elements, zeroed, at the start of a page; raises OutOfPinnedMemory (MemoryError).

        Warns, once a process, where there is memory but the system refuses to lock it.
        """
        length = max(count * dtype.itemsize, 1)
        try:
            block = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise OutOfPinnedMemory(
                what=f"{length} bytes of page-locked memory can not be had",
                found=str(error),
                expected="as much free memory",
                do="pin less: fewer or smaller offload buffers",
            ) from error
        _advise(block, length)
        start = _address(block)
        locked = _mlock(start, length)
        if not locked:
            _warn_once()
        with self._lock:
            if locked:
                self._locked.add(start)
            self._blocks[start] = weakref.ref(block)
            self._bounds[start] = start + length
            bisect.insort(self._starts, start)
        shown = (ctypes.c_char * length).from_buffer(block)
        # The pages are forgotten first and given back second: an mmap that dies tells nobody before its
        # addresses are free for others, so the finalizer holds it until it has run.
        weakref.finalize(shown, self._forget, start, block).atexit = False
        whole: torch.Tensor = torch.frombuffer(shown, dtype=torch.uint8)
        return whole[: count * dtype.itemsize].view(dtype)

    def free(self, address: int) -> bool:
        """Unlock the pages that begin there and give them back; False where none do."""
        with self._lock:
            reference = self._blocks.get(address)
            block = None if reference is None else reference()
            if block is None:
                return False
            _munlock(address, len(block))
            block.madvise(mmap.MADV_DONTNEED)
            self._forget(address)
            return True

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether all of the tensor's memory lies in one live block, locked or not."""
        return self._block_of(tensor) is not None

    def is_locked(self, tensor: torch.Tensor) -> bool:
        """Whether it does, and the system has locked the block."""
        with self._lock:
            return self._block_of(tensor) in self._locked

    def _block_of(self, tensor: torch.Tensor) -> int | None:
        if tensor.device.type != "cpu" or tensor.is_meta:
            return None
        first, last = extent(tensor)
        with self._lock:
            place = bisect.bisect_right(self._starts, first) - 1
            if place < 0 or last > self._bounds[self._starts[place]]:
                return None
            return self._starts[place]

    def _forget(self, start: int, _block: mmap.mmap | None = None) -> None:
        with self._lock:
            if self._blocks.pop(start, None) is not None:
                del self._bounds[start]
                self._locked.discard(start)
                self._starts.remove(start)


#: The one of this process: whoever pins, everybody can ask.
MEMORY = LockedMemory()
if hasattr(os, "register_at_fork"):
    # The child has the pages, and none of the locks.
    os.register_at_fork(after_in_child=MEMORY._locked.clear)


def pinned_like(tensor: torch.Tensor) -> torch.Tensor:
    """A page-aligned copy of a host tensor, contiguous, in its shape; locked where the system allows it."""
    fresh = MEMORY.allocate(tensor.numel(), tensor.dtype).view(tensor.shape)
    return fresh.copy_(tensor)


def _advise(block: mmap.mmap, length: int) -> None:
    if length >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages


def _address(block: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(block))


def _mlock(address: int, length: int) -> bool:
    return bool(ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(length)) == 0)


def _munlock(address: int, length: int) -> None:
    ctypes.CDLL(None).munlock(ctypes.c_void_p(address), ctypes.c_size_t(length))


_warned = False


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "memory is page-aligned but not locked: "
            "the limit of this process (ulimit -l) is too low, raise it",
            RuntimeWarning,
            stacklevel=4,
        )
