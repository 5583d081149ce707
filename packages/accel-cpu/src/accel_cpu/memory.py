# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory methods of the CPU: the memory of this process, whatever the index, within the control group's limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from typing_extensions import override

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor.numa import control_groups, text_of

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class ProcessMemory(DeepSpeedAccelerator):
    """Mixin with the memory methods of the interface; goes before TorchDeviceAccelerator.

    The peak of the resident memory is the kernel's record if it keeps one (Linux, macOS), which includes peaks between
    two calls. If that record cannot be reset, it is ignored after a reset until the process exceeds it; the peak is
    then the highest value at a call.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stale_mark = 0
        self._seen = self.get_rss()

    # Names of DeepSpeed's class for the CPU.

    @property
    def max_mem(self) -> int:
        """The peak of the resident memory, in bytes."""
        return self.max_memory_allocated()

    def get_rss(self) -> int:
        """Return the resident memory of this process, in bytes."""
        return int(psutil.Process().memory_info().rss)

    def reset_rss(self) -> int:
        """Reset the peak; return the resident memory, in bytes."""
        self._stale_mark = 0 if reset_high_water() else high_water()
        self._seen = self.get_rss()
        return self._seen

    @override
    def empty_cache(self) -> None:
        pass

    @override
    def memory_allocated(self, device_index: int | None = None) -> int:
        return self.get_rss()

    @override
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        self._seen = max(self._seen, self.get_rss())
        mark = high_water()
        return max(mark, self._seen) if mark > self._stale_mark else self._seen

    # There is no caching allocator: reserved memory is allocated memory.
    memory_reserved = memory_allocated
    max_memory_reserved = max_memory_allocated

    @override
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self.reset_rss()

    @override
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        figures = {"current": self.get_rss(), "peak": self.max_memory_allocated()}
        kinds = ("allocated_bytes", "reserved_bytes")
        return {f"{kind}.all.{name}": value for kind in kinds for name, value in figures.items()}

    @override
    def total_memory(self, device_index: int | None = None) -> int:
        machine, group = int(psutil.virtual_memory().total), group_limit()
        return min(machine, group.limit) if group else machine

    @override
    def available_memory(self, device_index: int | None = None) -> int:
        # What can be allocated without swapping.
        machine, group = int(psutil.virtual_memory().available), group_limit()
        return min(machine, group.free) if group else machine


def high_water() -> int:
    """Return the kernel's record of the largest resident size in bytes; 0 if it keeps none."""
    if sys.platform == "darwin":
        import resource  # not on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(_rows(_STATUS).get("VmHWM:", "0").removesuffix("kB")) * 1024


def reset_high_water() -> bool:
    """Reset the kernel's record to the current size; returns False if that is impossible or not permitted."""
    try:
        _CLEAR_REFS.write_text("5")  # resets the peak, see proc(5)
    except OSError:
        return False
    return True


class Limit(NamedTuple):
    """Limit of a Linux control group (container, batch job, systemd unit) and free memory below it, in bytes."""

    limit: int
    free: int


#: By cgroup controller: files with limit and usage, and the key in memory.stat of page cache that the kernel reclaims.
_VERSIONS = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def group_limit(root: Path = Path("/")) -> Limit | None:
    """Return the lowest limit of this process's control group and its ancestors; None if there is none."""
    bounds = list(_bounds(root))
    if not bounds:
        return None
    return Limit(min(bound.limit for bound in bounds), min(bound.free for bound in bounds))


def _bounds(root: Path) -> Iterator[Limit]:
    for controller, folder in control_groups(root, _VERSIONS):
        *files, reclaimable = _VERSIONS[controller]
        limit, usage = (text_of(folder / file).strip() for file in files)
        # "max" (version 2) is not a number; version 1 writes one beyond any machine.
        if limit.isdecimal() and usage.isdecimal():
            used = max(int(usage) - int(_rows(folder / "memory.stat").get(reclaimable, "0")), 0)
            yield Limit(int(limit), max(int(limit) - used, 0))


def _rows(path: Path) -> dict[str, str]:
    """Return the rows of a file by their first word."""
    rows = (line.split(None, 1) for line in text_of(path).splitlines())
    return {row[0]: row[1].strip() for row in rows if len(row) > 1}
