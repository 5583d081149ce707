# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of a tree of processes, from /proc."""

from __future__ import annotations

import os
import time

from accel_core.launch.supervise.processes import descendants

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Usage:
    """Use of everything below this process between two samples."""

    def __init__(self) -> None:
        self._at, self._seconds = time.monotonic(), 0.0

    def sample(self) -> dict[str, float]:
        """Return `percent` of one CPU since the last sample, and `memory`, resident bytes."""
        seconds, memory = 0.0, 0
        for pid in descendants(os.getpid()):
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            # Fields 14, 15 and 24 of proc(5): user time, system time, resident pages.
            seconds += (int(fields[11]) + int(fields[12])) / _TICKS
            memory += int(fields[21]) * _PAGE
        now = time.monotonic()
        # A process that has ended takes its CPU time with it.
        used = max(0.0, seconds - self._seconds) / max(now - self._at, 1e-3)
        self._at, self._seconds = now, seconds
        return {"percent": round(100 * used, 1), "memory": memory}
