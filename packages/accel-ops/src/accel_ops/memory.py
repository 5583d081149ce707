# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked ("pinned") host memory, and the builders `pin_memory` and `utils`.

Memory is allocated in whole pages, and records tell which of it is allocated and locked.

Where the system refuses to lock (`ulimit -l`), the memory is allocated without the lock, with one warning, and is not
reported as pinned: training continues with it.

The address range stays reserved until the last tensor on it is deleted. `free` returns the physical memory earlier; a
tensor that is still in use then reads zeros, never data that another allocation has put there.

Blocks of a few hundred kilobytes share slabs of huge pages, so that a disk transfers them as fast as one large block. A
slab is given back when the last of its blocks is gone; addresses within it are not used again before.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from accel_core.op_builder import Implementation, OpBuilder
from accel_ops.errors import OutOfPinnedMemory
from accel_ops.host.aliasing import extent

#: Two huge pages. What a block at the least takes of it bounds what a last block keeps: a sixteenth.
SLAB, LEAST = 4 << 20, 256 << 10
_HUGE_PAGE = 2 << 20


class Slab:
    """Memory in whole huge pages, where the system has them, given out once, from its beginning."""

    def __init__(self, address_of: Callable[[mmap.mmap], int]) -> None:
        self.memory = mmap.mmap(-1, SLAB + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = address_of(self.memory)
        self._next = -first % _HUGE_PAGE
        self._end = self._next + SLAB
        self.address = first + self._next

    def take(self, length: int) -> int | None:
        """Return the offset in `memory` of the next block, which begins at a page; None where it does not fit."""
        begin = self._next
        end = begin + -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        if end > self._end:
            return None
        self._next = end
        return begin


#: Blocks of at least this many bytes, two huge pages, are advised to use huge pages.
_HUGE = 4 << 20


class LockedBlock(NamedTuple):
    """Record of a block: its memory, the address after its last byte, and if the system has locked it."""

    memory: weakref.ReferenceType[mmap.mmap]
    end: int
    locked: bool


class LockedMemory:
    """The page-locked blocks of a process, by address. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._blocks: dict[int, LockedBlock] = {}
        #: The addresses of the blocks, in order.
        self._starts: list[int] = []
        self._lock = threading.RLock()
        self._slab: Slab | None = None
        #: Called with the bounds of memory before it is returned: waits until nothing is transferred to or from it.
        self.before_free: Callable[[int, int], None] | None = None

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of `count` zeros that begins at a page; raises OutOfPinnedMemory (a MemoryError).

        Warns, once a process, where the system refuses to lock the memory.
        """
        length = max(count * dtype.itemsize, 1)
        try:
            block, offset, locked = self._shared(length) or self._own(length)
        except (OSError, ValueError, OverflowError) as error:
            raise OutOfPinnedMemory(
                f"{length} bytes of page-locked memory cannot be allocated: {error!s}",
                do="pin less memory: use fewer or smaller offload buffers",
            ) from error
        start = _address(block) + offset
        if not locked:
            _warn_once()
        with self._lock:
            self._blocks[start] = LockedBlock(weakref.ref(block), start + length, locked)
            bisect.insort(self._starts, start)
        owner = (ctypes.c_char * length).from_buffer(block, offset)
        # The block must leave our records before its addresses can be allocated again: the finalizer keeps the mmap
        # open until it has removed it.
        weakref.finalize(owner, self._forget, start, block).atexit = False
        whole: torch.Tensor = torch.frombuffer(owner, dtype=torch.uint8)
        return whole[: count * dtype.itemsize].view(dtype)

    def _own(self, length: int) -> tuple[mmap.mmap, int, bool]:
        """Return a block's memory, its offset there, and whether it is locked."""
        block = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _advise(block, length)
        return block, 0, _mlock(_address(block), length)

    def _shared(self, length: int) -> tuple[mmap.mmap, int, bool] | None:
        """As `_own`, in huge pages that several blocks share; None for other sizes, and where no slab can be locked."""
        if not LEAST <= length <= SLAB // 2:
            return None
        with self._lock:
            if self._slab is not None and (offset := self._slab.take(length)) is not None:
                return self._slab.memory, offset, True
            slab = Slab(_address)
            _advise(slab.memory, SLAB)
            if not _mlock(slab.address, SLAB):
                return None
            self._slab = slab
            return slab.memory, slab.take(length) or 0, True

    def after_fork_in_child(self) -> None:
        """In a child of a fork, which inherits the pages, but neither their locks nor the parent's other threads.

        Such a thread may have held our lock, and have recorded a half of its block.
        """
        self._lock = threading.RLock()
        self._slab = None
        self._blocks = {start: block._replace(locked=False) for start, block in self._blocks.items()}
        self._starts = sorted(self._blocks)

    def free(self, address: int) -> bool:
        """Unlock the block at this address and return its memory; False where none begins there.

        Waits for file transfers that use it.
        """
        block = self._blocks.get(address)
        if block is not None and self.before_free is not None:
            self.before_free(address, block.end)
        with self._lock:
            block = self._blocks.get(address)
            memory = None if block is None else block.memory()
            if block is None or memory is None:
                return False
            length = block.end - address
            _munlock(address, length)
            memory.madvise(mmap.MADV_DONTNEED, address - _address(memory), length)
            self._forget(address)
            return True

    def owns(self, tensor: torch.Tensor) -> bool:
        """Return whether all of the tensor's memory is in one allocated block, locked or not."""
        return self._block_of(tensor) is not None

    def is_locked(self, tensor: torch.Tensor) -> bool:
        """Return whether all of the tensor's memory is in one block that the system has locked."""
        block = self._block_of(tensor)
        return block is not None and block.locked

    def _block_of(self, tensor: torch.Tensor) -> LockedBlock | None:
        if tensor.device.type != "cpu" or tensor.is_meta:
            return None
        first, last = extent(tensor)
        with self._lock:
            index = bisect.bisect_right(self._starts, first) - 1
            block = self._blocks[self._starts[index]] if index >= 0 else None
            return block if block is not None and last <= block.end else None

    def _forget(self, start: int, _block: mmap.mmap | None = None) -> None:
        with self._lock:
            if self._blocks.pop(start, None) is not None:
                self._starts.remove(start)


#: All page-locked memory of this process.
MEMORY = LockedMemory()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MEMORY.after_fork_in_child)


def pinned_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous, page-aligned copy of a host tensor, locked where the system allows it."""
    copy = MEMORY.allocate(tensor.numel(), tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


def _advise(block: mmap.mmap, length: int) -> None:
    if length >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # this kernel has no huge pages


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


def cast_to_byte_tensor(
    tensors: torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...],
) -> torch.Tensor | list[torch.Tensor]:
    """Return the bytes of a tensor, or of each of a list, as a flat tensor of uint8: its memory where contiguous."""
    if isinstance(tensors, (list, tuple)):
        return [as_bytes(tensor) for tensor in tensors]
    return as_bytes(tensors)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor as a flat tensor of uint8."""
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # The stride of a single element can be any number, which view() does not take.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)


class UtilsBuilder(OpBuilder):
    """Builds `utils`: torch's `flatten(tensors)` and `unflatten(flat, tensors)`, and `cast_to_byte_tensor(tensors)`."""

    NAME = "utils"
    BUILD_VAR = "DS_BUILD_UTILS"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and torch's module."""
        return True, "torch._utils"

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions."""
        return SimpleNamespace(
            flatten=_flatten_dense_tensors,
            unflatten=_unflatten_dense_tensors,
            cast_to_byte_tensor=cast_to_byte_tensor,
        )


class pin_handle:
    """Upstream's class. All handles share the page-locked memory of the process."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """Return `num_elem` zeros of the example's dtype in whole pages; warns where they cannot be locked."""
        return MEMORY.allocate(num_elem, example_tensor.dtype)

    def free_cpu_locked_tensor(self, locked_tensor: torch.Tensor) -> bool:
        """Free the block that begins with the tensor; False where none does."""
        return MEMORY.free(locked_tensor.data_ptr())

    def free_cpu_locked_tensor_by_ptr(self, address: int) -> bool:
        """Free the block at the address; False where none begins there."""
        return MEMORY.free(address)

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Return whether the memory is locked, by this package or by torch."""
        return MEMORY.is_locked(buffer) or buffer.is_pinned()


class PinMemoryBuilder(OpBuilder):
    """Builds `pin_memory`: the allocator of DS_PIN_MEMORY_BACKEND=native. Nothing is compiled."""

    NAME = "pin_memory"
    BUILD_VAR = "DS_BUILD_PIN_MEMORY"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.HOST,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and the functions that it uses."""
        return True, "mmap and mlock of the C library"

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's class."""
        return SimpleNamespace(pin_handle=pin_handle)
