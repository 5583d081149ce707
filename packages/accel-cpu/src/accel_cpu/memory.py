# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures of this process and of the machine, in bytes: what stands for device memory on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from accel_cpu import cgroup

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
#: Writing this sets the kernel's high-water mark back to the present resident size (proc(5)).
_RESET_HIGH_WATER = "5"


class HostMemory:
    """Resident memory, its peak, and how much the machine or the control group has.

    The peak is the kernel's high-water mark where it keeps one (Linux, macOS), so that a spike between
    two calls is seen. Where that cannot be set back, a mark from before `reset_peak` is not counted: the
    peak is then the highest size that a call has seen, until the process outgrows the mark.
    """

    def __init__(self) -> None:
        self._stale_mark = 0
        self._seen = self.rss()

    def rss(self) -> int:
        """Bytes of this process that are in memory now."""
        return int(psutil.Process().memory_info().rss)

    def peak(self) -> int:
        """Most bytes in memory at once since the process began or `reset_peak` was called."""
        self._seen = max(self._seen, self.rss())
        mark = high_water()
        return max(mark, self._seen) if mark > self._stale_mark else self._seen

    def reset_peak(self) -> None:
        """Let the peak begin again at the present size."""
        self._stale_mark = 0 if reset_high_water() else high_water()
        self._seen = self.rss()

    def total(self) -> int:
        """Bytes of memory that this process may use: the machine's, or its control group's limit if lower."""
        machine = int(psutil.virtual_memory().total)
        group = cgroup.memory()
        return min(machine, group.limit) if group else machine

    def available(self) -> int:
        """Bytes that can still be had without swapping, within the control group's limit."""
        machine = int(psutil.virtual_memory().available)
        group = cgroup.memory()
        return min(machine, group.free) if group else machine


def high_water() -> int:
    """The kernel's record of this process's largest resident size in bytes; 0 where it keeps none."""
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
    """Set the kernel's record back to the present size; False where the system cannot or may not."""
    try:
        _CLEAR_REFS.write_text(_RESET_HIGH_WATER)
    except OSError:
        return False
    return True
