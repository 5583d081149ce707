# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Cores and memory of a machine that a process may use: sockets, NUMA nodes, physical cores, SMT siblings.

Read from /sys, the affinity and the cpuset; `accel_core.vendor.numa` has the part that needs no cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from accel_core.launch import memory
from accel_core.launch.codec import AS_LIST
from accel_core.vendor.numa import (
    SYSTEM,
    NumaNode,
    allowed_cpus,
    online_cpus,
    process_status,
    read_cpu_list,
    read_nodes,
)


@dataclass(frozen=True)
class Core:
    """A physical core with its usable hardware threads, ascending.

    capacity: computing power relative to the machine's other cores; differs on hybrid processors only.
    """

    cpus: tuple[int, ...] = field(metadata=AS_LIST)
    socket: int
    capacity: int


@dataclass(frozen=True)
class Node:
    """A NUMA node with usable cores, in the order of their first hardware threads.

    numbers: the node and its twins of `numa=fake`. memory: those of them whose memory may be used. fast_memory: nodes
    without CPUs whose memory is nearest to these cores and faster (HBM in flat mode).
    """

    number: int
    cores: tuple[Core, ...]
    numbers: tuple[int, ...] = field(metadata=AS_LIST)
    memory: tuple[int, ...] = field(metadata=AS_LIST)
    fast_memory: tuple[int, ...] = field(metadata=AS_LIST)


@dataclass(frozen=True)
class Topology:
    """The usable part of a machine.

    nodes: by socket, then number. online: all CPUs that are switched on, present: all that the machine has; both for
    messages. memory_only: nodes without CPUs.
    """

    nodes: tuple[Node, ...]
    online: tuple[int, ...] = field(metadata=AS_LIST)
    present: tuple[int, ...] = field(metadata=AS_LIST)
    memory_only: tuple[int, ...] = field(default=(), metadata=AS_LIST)

    def cpus(self) -> frozenset[int]:
        """Return all usable hardware threads."""
        return frozenset(cpu for node in self.nodes for core in node.cores for cpu in core.cpus)

    def core_count(self) -> int:
        """Return the number of usable physical cores."""
        return sum(len(node.cores) for node in self.nodes)

    def narrowed(self, cpus: Iterable[int]) -> Topology:
        """Return the topology with these CPUs alone; nodes without any of them are dropped."""
        wanted = frozenset(cpus)
        nodes = []
        for node in self.nodes:
            cores = [
                replace(core, cpus=tuple(cpu for cpu in core.cpus if cpu in wanted)) for core in node.cores
            ]
            if kept := tuple(core for core in cores if core.cpus):
                nodes.append(replace(node, cores=kept))
        return replace(self, nodes=tuple(nodes))


def read(root: Path, allowed: Iterable[int] | None = None) -> Topology:
    """Return the topology under `root`; `allowed` (affinity and cpuset) is that of this process if None.

    Raises `InvalidCpuList`.
    """
    usable = allowed_cpus(root) if allowed is None else frozenset(allowed)
    nodes = read_nodes(root, usable)
    online = online_cpus(root) or usable
    present = read_cpu_list(root / SYSTEM / "cpu/present") or frozenset(range(max(online) + 1))
    complete = online >= present
    described = memory.read(root, complete=complete, allowed=process_status(root, "Mems_allowed_list"))
    capacity = _Capacities(root, complete)
    built = (_node(root, node, described, capacity) for node in nodes)
    return Topology(
        nodes=tuple(sorted(built, key=lambda node: (node.cores[0].socket, node.number))),
        online=tuple(sorted(online)),
        present=tuple(sorted(present | online)),
        memory_only=described.memory_only,
    )


def _node(root: Path, node: NumaNode, described: memory.Memory, capacity: _Capacities) -> Node:
    return Node(
        number=node.number,
        cores=tuple(_cores(root, node.cpus, capacity)),
        numbers=node.numbers,
        memory=tuple(number for number in node.numbers if number in described.usable),
        fast_memory=described.fast.get(node.number, ()),
    )


def _cores(root: Path, cpus: tuple[int, ...], capacity: _Capacities) -> Iterable[Core]:
    rest = set(cpus)
    for cpu in cpus:
        if cpu not in rest:
            continue
        folder = root / SYSTEM / f"cpu/cpu{cpu}/topology"
        siblings = read_cpu_list(folder / "core_cpus_list") or read_cpu_list(folder / "thread_siblings_list")
        own = (siblings or frozenset()) & rest | {cpu}
        rest -= own
        socket = max(_number(folder / "physical_package_id"), 0)
        yield Core(tuple(sorted(own)), socket, capacity.of(cpu, len(siblings or own)))


class _Capacities:
    """Computing power of cores: as Arm's kernels state it, else by the two kinds of Intel's hybrid processors."""

    def __init__(self, root: Path, complete: bool) -> None:
        self._root, self._complete = root, complete
        self._small = read_cpu_list(root / "sys/devices/cpu_atom/cpus") or frozenset()

    def of(self, cpu: int, threads: int) -> int:
        stated = _number(self._root / SYSTEM / f"cpu/cpu{cpu}/cpu_capacity")
        if stated > 0:
            return stated
        if cpu in self._small:
            return 512
        # Where neither is stated, a core with more threads than others is a larger one, unless siblings are offline.
        return 1024 * (threads if self._complete else 1)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1
