# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked host memory in whole pages, and exact knowledge of which is alive."""

from __future__ import annotations

import ctypes
import mmap
import os
import warnings
import weakref
from functools import cache
from typing import Any

import torch


class LockedMemory:
    """The locked pages of a process. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        # Locks are not inherited by a forked process.
        os.register_at_fork(after_in_child=self._live.clear)

    def allocate(self, nbytes: int) -> torch.Tensor:
        """That many bytes, zeroed, at the start of a page; raises MemoryError.

        Where the process may lock no more (`ulimit -l`) there is a warning, and the pages count as not locked.
        """
        length = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        libc = _libc()
        flags = (mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = libc.mmap(None, length, *flags, -1, 0)
        if start == ctypes.c_void_p(-1).value:
            raise MemoryError(f"{length} bytes of host memory: {os.strerror(ctypes.get_errno())}")
        block = (ctypes.c_char * length).from_address(start)
        # Not an mmap.mmap: that gives its pages back before anyone hears of it, and others may get them.
        weakref.finalize(block, self._release, start, length).atexit = False
        if libc.mlock(start, length) == 0:
            self._live[start] = start + length
        else:
            cause = os.strerror(ctypes.get_errno())
            warnings.warn(f"memory is page-aligned but not locked: {cause} (ulimit -l)", stacklevel=3)
        bytes_: torch.Tensor = torch.frombuffer(block, dtype=torch.uint8)
        return bytes_[:nbytes]

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a host tensor lies in live locked pages."""
        if not self._live or not tensor.is_cpu:
            return False
        first = tensor.data_ptr()
        return any(start <= first < end for start, end in list(self._live.items()))

    def _release(self, start: int, length: int) -> None:
        self._live.pop(start, None)
        _libc().munmap(start, length)


#: The one of this process.
MEMORY = LockedMemory()


def pinned_like(tensor: torch.Tensor) -> torch.Tensor:
    """A page-aligned, page-locked copy of a host tensor, contiguous, in its shape."""
    return MEMORY.allocate(tensor.nbytes).view(tensor.dtype).view(tensor.shape).copy_(tensor)


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]  # fmt: skip
    for name in ("munmap", "mlock"):
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library
