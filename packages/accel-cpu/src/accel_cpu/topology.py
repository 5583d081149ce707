# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes with CPUs that this process may use, as Linux describes them under /sys.

The kernel's files are read directly: numactl is often not installed, and ignores which CPUs a container or a
batch system allows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from accel_core.errors import AccelError
from accel_core.vendor import system_root

_SYSTEM = "sys/devices/system"
_CPU_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
#: Linux supports at most 8192 CPUs. A much larger number means a damaged file, and would fill the memory.
_MOST_CPUS = 65_536


class InvalidCpuList(AccelError, ValueError):
    """A list of CPUs is not in the kernel's format."""

    code = "ACC-601"


class Node(NamedTuple):
    """A NUMA node with its usable CPUs (hardware threads), ascending."""

    number: int
    cpus: tuple[int, ...]


def usable_nodes() -> tuple[Node, ...]:
    """Return the nodes on which this process may run, at least one.

    With `ACCEL_SYSROOT`, those of the recorded machine. Raises `InvalidCpuList`.
    """
    root = system_root()
    if root == Path("/"):
        return read_nodes(root, allowed_cpus())
    # The affinity of this process does not apply to a recorded machine.
    return read_nodes(root, _online(root) or allowed_cpus())


def allowed_cpus() -> frozenset[int]:
    """Return the CPUs that affinity and cpuset allow; all CPUs if the system has no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def read_nodes(root: Path, allowed: Iterable[int]) -> tuple[Node, ...]:
    """Return the nodes under `root` with allowed online CPUs; without /sys, one node with all of `allowed`.

    Nodes without CPUs (HBM in flat mode, CXL) are left out. Raises `InvalidCpuList`.
    """
    usable = frozenset(allowed)
    online = _online(root)
    nodes: list[Node] = []
    seen: set[tuple[int, ...]] = set()
    for number, listed in _listed_cpus(root):
        cpus = tuple(sorted(listed & usable & (online or listed)))
        # numa=fake splits memory only: each fake node lists all CPUs of the real one.
        if cpus and cpus not in seen:
            nodes.append(Node(number, cpus))
            seen.add(cpus)
    return tuple(nodes) or (Node(0, tuple(sorted(usable))),)


def parse_cpu_list(text: str, source: str = "the list") -> frozenset[int]:
    """Return the CPUs of a list such as `0-3,8,10-11`; raises `InvalidCpuList`, with `source`."""
    text = text.strip()
    if not text:
        return frozenset()
    cpus: set[int] = set()
    if _CPU_LIST.fullmatch(text):
        for item in text.split(","):
            first, _, last = item.partition("-")
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


def _online(root: Path) -> frozenset[int]:
    return _read(root / _SYSTEM / "cpu/online")


def _listed_cpus(root: Path) -> list[tuple[int, frozenset[int]]]:
    folders = (root / _SYSTEM / "node").glob("node[0-9]*")
    return sorted((int(folder.name[4:]), _read(folder / "cpulist")) for folder in folders)


def _read(path: Path) -> frozenset[int]:
    try:
        return parse_cpu_list(path.read_text(errors="replace"), str(path))
    except OSError:
        return frozenset()
