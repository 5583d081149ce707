# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of CPUs and NUMA nodes as the kernel writes them: `0-3,8,10-11`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from accel_core.errors import AccelError

_CPU_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
#: Linux supports at most 8192 CPUs. A much larger number means a damaged file, and would fill the memory.
_MOST_CPUS = 65_536


class InvalidCpuList(AccelError, ValueError):
    """A list of CPUs is not in the kernel's format."""

    code = "ACC-601"


def parse_cpu_list(text: str, source: str = "the list") -> frozenset[int]:
    """Return the CPUs of a list such as `0-3,8,10-11`; raises `InvalidCpuList`, with `source`."""
    text = text.strip()
    if not text:
        return frozenset()
    cpus: set[int] = set()
    if _CPU_LIST.fullmatch(text):
        for item in text.split(","):
            first, _, last = item.partition("-")
            # Python refuses to convert thousands of digits.
            if max(len(first), len(last)) > 20:
                break
            numbers = range(int(first), int(last or first) + 1)
            if not numbers or numbers[-1] >= _MOST_CPUS or not cpus.isdisjoint(numbers):
                break
            cpus.update(numbers)
        else:
            return frozenset(cpus)
    raise InvalidCpuList(
        what=f"cannot read the CPUs in {source}",
        found=repr(text if len(text) <= 80 else text[:80] + "…"),
        expected=f"numbers below {_MOST_CPUS} and ranges, each CPU once, such as 0-3,8,10-11",
        do="report the file with your kernel's version; ACCEL_SYSROOT=/nonexistent ignores it",
    )


def format_cpu_list(numbers: Iterable[int]) -> str:
    """Return the numbers, ascending, as `0-3,8`; empty for none."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
