# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory of this process and of the machine, in bytes, reported as the device memory of a CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from accel_cpu import cgroup

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
#: Writing this value resets the kernel's peak to the current resident size (proc(5)).
_RESET_HIGH_WATER = "5"


class HostMemory:
    """Resident memory, its peak, and the total and available memory.

    The peak is the kernel's record if it keeps one (Linux, macOS), which includes peaks between two calls. If
    that record cannot be reset, it is ignored after `reset_peak` until the process exceeds it; the peak is then
    the highest value at a call.
    """

    def __init__(self) -> None:
        self._stale_mark = 0
        self._seen = self.rss()

    def rss(self) -> int:
        """Return the resident memory of this process, in bytes."""
        return int(psutil.Process().memory_info().rss)

    def peak(self) -> int:
        """Return the peak of `rss` since the start or the last `reset_peak`, in bytes."""
        self._seen = max(self._seen, self.rss())
        mark = high_water()
        return max(mark, self._seen) if mark > self._stale_mark else self._seen

    def reset_peak(self) -> None:
        """Reset the peak to the current size."""
        self._stale_mark = 0 if reset_high_water() else high_water()
        self._seen = self.rss()

    def total(self) -> int:
        """Return the memory of the machine, or the limit of the control group if lower, in bytes."""
        machine = int(psutil.virtual_memory().total)
        group = cgroup.memory()
        return min(machine, group.limit) if group else machine

    def available(self) -> int:
        """Return the bytes that can be allocated without swapping, within the control group's limit."""
        machine = int(psutil.virtual_memory().available)
        group = cgroup.memory()
        return min(machine, group.free) if group else machine


def high_water() -> int:
    """Return the kernel's record of the largest resident size in bytes; 0 if it keeps none."""
    if sys.platform == "darwin":
        import resource  # not on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        rows = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    for row in rows:
        key, _, value = row.partition(":")
        if key == "VmHWM":
            return int(value.removesuffix("kB")) * 1024
    return 0


def reset_high_water() -> bool:
    """Reset the kernel's record to the current size; returns False if that is impossible or not permitted."""
    try:
        _CLEAR_REFS.write_text(_RESET_HIGH_WATER)
    except OSError:
        return False
    return True
