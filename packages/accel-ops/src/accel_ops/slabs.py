# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of page-locked memory that share huge pages, so that a disk transfers them as fast as one large block.

A slab is given back when the last of its blocks is gone; addresses within it are not used again before.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

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
