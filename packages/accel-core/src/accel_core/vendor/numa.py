# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""CPUs and NUMA nodes that this process may use, as Linux describes them under /sys.

The kernel's files are read directly: numactl is often not installed, and ignores which CPUs a container or a
batch system allows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from accel_core.env import system_root
from accel_core.errors import AccelError

_CPU_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
#: Linux supports at most 8192 CPUs. A much larger number means a damaged file, and would fill the memory.
_MOST_CPUS = 65_536


class InvalidCpuList(AccelError, ValueError, code="ACC-601"):
    """A list of CPUs is not in the kernel's format."""


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
        f"cannot read the CPUs in {source}: {text if len(text) <= 80 else text[:80] + '…'!r}; "
        f"expected numbers below {_MOST_CPUS} and ranges, each CPU once, such as 0-3,8,10-11",
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


SYSTEM = "sys/devices/system"
#: Files by controller; version 2 of the cgroup interface has all controllers in one group.
_CPUSETS = {"": ("cpuset.cpus.effective",), "cpuset": ("cpuset.effective_cpus", "cpuset.cpus")}


class NumaNode(NamedTuple):
    """A NUMA node with its usable CPUs (hardware threads), ascending.

    numbers: the node and those that list the same CPUs, which the kernel's `numa=fake` makes of one node.
    """

    number: int
    cpus: tuple[int, ...]
    numbers: tuple[int, ...]


def usable_nodes() -> tuple[NumaNode, ...]:
    """Return the nodes on which this process may run, at least one.

    With `ACCEL_SYSROOT`, those of the recorded machine. Raises `InvalidCpuList`.
    """
    root = system_root()
    return read_nodes(root, allowed_cpus(root))


def allowed_cpus(root: Path) -> frozenset[int]:
    """Return the online CPUs that the affinity and the cpuset of this process allow; raises `InvalidCpuList`.

    Of a recorded machine: those in its proc/self/status, else all.
    """
    online = online_cpus(root)
    affinity = _affinity(root) or online
    if not affinity:
        return frozenset(range(os.cpu_count() or 1))
    cpus = (affinity & online) or affinity
    # Usually the affinity is within the cpuset already; not in a sandbox with a /proc of its own.
    return (cpus & _cpuset(root)) or cpus


def online_cpus(root: Path) -> frozenset[int]:
    """Return the CPUs that are switched on; empty if the system does not say. Raises `InvalidCpuList`."""
    return read_cpu_list(root / SYSTEM / "cpu/online") or frozenset()


def read_nodes(root: Path, allowed: Iterable[int]) -> tuple[NumaNode, ...]:
    """Return the nodes under `root` with allowed online CPUs; each of `allowed` that is online is in one node.

    Nodes without CPUs (HBM in flat mode, CXL) are left out. CPUs that no node lists belong to the first one; without
    /sys there is one node. Raises `InvalidCpuList`.
    """
    usable = frozenset(allowed)
    usable = (usable & online_cpus(root)) or usable
    nodes: list[NumaNode] = []
    listed: dict[frozenset[int], list[int]] = {}
    for number, cpus in listed_nodes(root):
        if cpus:
            # numa=fake splits memory only: each fake node lists all CPUs of the real one.
            listed.setdefault(cpus, []).append(number)
    rest = set(usable)
    for cpus, numbers in listed.items():
        if own := cpus & rest:
            nodes.append(NumaNode(numbers[0], tuple(sorted(own)), tuple(numbers)))
            rest -= own
    if rest or not nodes:
        first = nodes[0] if nodes else NumaNode(0, (), (0,))
        nodes[:1] = [first._replace(cpus=tuple(sorted(rest.union(first.cpus))))]
    return tuple(nodes)


def listed_nodes(root: Path) -> list[tuple[int, frozenset[int]]]:
    """Return number and listed CPUs of each node under `root`, by number; raises `InvalidCpuList`."""
    folders = ((_digits(folder.name[4:]), folder) for folder in (root / SYSTEM / "node").glob("node[0-9]*"))
    return sorted(
        (number, read_cpu_list(folder / "cpulist") or frozenset())
        for number, folder in folders
        if number is not None
    )


def text_of(path: Path) -> str:
    """Return the text of one of the kernel's files; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def read_cpu_list(path: Path) -> frozenset[int] | None:
    """Return the numbers in a file, None if there is none; raises `InvalidCpuList`."""
    try:
        return parse_cpu_list(path.read_text(errors="replace"), str(path))
    except OSError:
        return None


def process_status(root: Path, key: str) -> frozenset[int]:
    """Return the list with this key in proc/self/status (`Cpus_allowed_list`); empty if it is not there."""
    match = re.search(rf"^{key}:\s*(\S*)$", text_of(root / "proc/self/status"), re.MULTILINE)
    return parse_cpu_list(match[1], f"{key} of proc/self/status") if match else frozenset()


def _affinity(root: Path) -> frozenset[int]:
    if root == Path("/") and hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return process_status(root, "Cpus_allowed_list")


def _cpuset(root: Path) -> frozenset[int]:
    """Return the CPUs of this process's cpuset; empty if none is found."""
    for controller, folder in control_groups(root, _CPUSETS):
        for name in _CPUSETS[controller]:
            try:
                if cpus := read_cpu_list(folder / name):
                    return cpus
            except InvalidCpuList:
                continue  # a sandbox's imitation of the file; the affinity remains
    return frozenset()


def control_groups(root: Path, wanted: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield controller and folder of this process's control groups, each followed by those above it.

    wanted: controllers of version 1 of the interface, which are also mount points; the empty one is version 2.
    """
    groups = re.findall(r"^[0-9]+:([^:]*):(/.*)$", text_of(root / "proc/self/cgroup"), re.MULTILINE)
    for controllers, path in groups:
        for controller in wanted:
            if controller not in controllers.split(",") or ".." in path.split("/"):
                continue
            mount = root / "sys/fs/cgroup" / controller
            group = mount / path.lstrip("/")
            # In a container the group is often mounted at the mount point itself, while its path is the host's.
            folders = (folder for folder in (group, *group.parents) if folder.is_relative_to(mount))
            yield from ((controller, folder) for folder in folders)


def _digits(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None
