# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The cores of each rank of a host. Pure functions of the topology.

The physical cores of a NUMA node are divided evenly among its ranks; SMT siblings stay together. Ranks are spread so
that the smallest share is as large as possible. A rank has several nodes only if there are fewer ranks than nodes, and
then all of their cores.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from accel_core.vendor import InvalidCpuList, format_cpu_list, parse_cpu_list
from accel_launch.errors import BindingImpossible
from accel_launch.machine import Core, Node, Topology
from accel_launch.plan import MemoryPolicy


@dataclass(frozen=True)
class Share:
    """The cores of one rank, and the NUMA nodes that they belong to."""

    cores: tuple[Core, ...]
    nodes: tuple[Node, ...]

    def cpus(self) -> tuple[int, ...]:
        """Return the hardware threads, ascending."""
        return tuple(sorted(cpu for core in self.cores for cpu in core.cpus))

    def memory(self) -> MemoryPolicy:
        """Return the policy: HBM preferred, else bound to the node; the kernel's own if the rank has several nodes."""
        if len(self.nodes) != 1:
            return MemoryPolicy()
        node = self.nodes[0]
        if node.fast_memory:
            return MemoryPolicy("preferred", node.fast_memory)
        return MemoryPolicy("bind", node.memory) if node.memory else MemoryPolicy()


def usable_cores(topology: Topology, core_list: str | None, reserve: int) -> tuple[Topology, tuple[int, ...]]:
    """Return the cores for ranks, and the CPUs kept free; raises `BindingImpossible`.

    core_list: the CPUs of `--bind_core_list`. reserve: cores of each NUMA node that no rank may have.
    """
    if core_list is not None:
        topology = topology.narrowed(_listed(topology, core_list))
    nodes, reserved = [], []
    for node in topology.nodes:
        # The smallest first; of equal ones the lowest, where the kernel's own work and interrupts are.
        kept = {core.cpus for core in sorted(node.cores, key=lambda core: core.capacity)[:reserve]}
        reserved += [cpu for cpus in kept for cpu in cpus]
        if rest := tuple(core for core in node.cores if core.cpus not in kept):
            nodes.append(replace(node, cores=rest))
    if not nodes:
        raise BindingImpossible(
            what="cannot bind ranks to cores: no core is left",
            found=f"--reserve_cores {reserve}, with at most {max(len(n.cores) for n in topology.nodes)} cores a node",
            expected="fewer reserved cores than a NUMA node has",
            do="reserve fewer cores",
        )
    return replace(topology, nodes=tuple(nodes)), tuple(sorted(reserved))


def _listed(topology: Topology, text: str) -> frozenset[int]:
    try:
        cpus = parse_cpu_list(text, "--bind_core_list")
    except InvalidCpuList:
        cpus = frozenset()
    numbers = [int(digits) for digits in re.findall("[0-9]+", text)] if cpus else []
    if not cpus or numbers != sorted(numbers):
        raise _impossible_list(
            repr(text[:80]), "numbers and ranges in ascending order, each CPU once: 0-51,56-107"
        )
    missing = cpus - set(topology.present)
    offline = cpus - set(topology.online) - missing
    denied = cpus - topology.cpus() - missing - offline
    for wrong, sentence in (
        (missing, "do not exist here"),
        (offline, "are offline"),
        (denied, "are not allowed to this process by its affinity or cpuset (container, batch system)"),
    ):
        if wrong:
            raise _impossible_list(
                f"CPUs {format_cpu_list(wrong)} of {text!r} {sentence}",
                f"some of {format_cpu_list(topology.cpus())}",
            )
    return cpus


def _impossible_list(found: str, expected: str) -> BindingImpossible:
    return BindingImpossible(
        what="cannot bind ranks to the cores of --bind_core_list",
        found=found,
        expected=expected,
        do="correct the list, or leave it out to use all allowed cores",
    )


def divide(topology: Topology, ranks: int, near: Sequence[int | None] = ()) -> list[Share]:
    """Return the share of each rank, in the order of local ranks; raises `BindingImpossible`.

    near: for each rank the NUMA node of its device, None if unknown. Ranks are placed there if each can have a core.
    """
    nodes = topology.nodes
    if not 0 < ranks <= topology.core_count():
        raise BindingImpossible(
            what="cannot bind ranks to cores: more ranks than cores",
            found=f"{ranks} ranks, {topology.core_count()} physical cores "
            f"(CPUs {format_cpu_list(topology.cpus())})",
            expected="at least one physical core for each rank; SMT siblings count once",
            do="start fewer ranks, or allow more cores",
        )
    position = {number: index for index, node in enumerate(nodes) for number in node.numbers}
    homes = [position.get(-1 if number is None else number) for number in near[:ranks]]
    homes += [None] * (ranks - len(homes))
    placed = _placed(nodes, homes)
    near_devices = any(home is not None for home in homes)
    if not near_devices or any(placed.count(index) > len(node.cores) for index, node in enumerate(nodes)):
        # As many ranks as nodes: one on each.
        placed = sorted(range(ranks) if ranks == len(nodes) else _placed(nodes, [None] * ranks))
        each = min(len(nodes[index].cores) // placed.count(index) for index in placed)
        groups = _whole_nodes(nodes, ranks)
        if groups and min(map(_size, groups)) > each:
            return [Share(tuple(core for node in group for core in node.cores), group) for group in groups]
    shares = [_within(node, placed.count(index)) for index, node in enumerate(nodes)]
    return [shares[index].pop(0) for index in placed]


def _placed(nodes: Sequence[Node], homes: Sequence[int | None]) -> list[int]:
    """Return a node's index for each rank: its home, or where most cores are left for it.

    So the smallest share is as large as possible. Of equal nodes the one with fewest ranks is taken.
    """
    placed = list(homes)
    for rank, home in enumerate(homes):
        if home is None:
            counts = [placed.count(index) for index in range(len(nodes))]
            placed[rank] = max(
                range(len(nodes)), key=lambda at: (len(nodes[at].cores) / (counts[at] + 1), -counts[at])
            )
    return [index for index in placed if index is not None]


def _size(nodes: Sequence[Node]) -> int:
    return sum(len(node.cores) for node in nodes)


def _within(node: Node, ranks: int) -> list[Share]:
    """Divide a node: neighbouring cores for a rank, or of each kind of core the same number, as far as possible."""
    if ranks == 0:
        return []
    each = len(node.cores) // ranks
    kinds = _kinds(node.cores)
    if len(set(kinds)) == 1:
        return [Share(node.cores[at * each : (at + 1) * each], (node,)) for at in range(ranks)]
    order = sorted(range(len(node.cores)), key=lambda index: kinds[index])[: ranks * each]
    rows = [order[at : at + ranks] for at in range(0, len(order), ranks)]
    # Every second row backwards, so that the first rank does not have the largest core of each row.
    dealt = [row if at % 2 == 0 else row[::-1] for at, row in enumerate(rows)]
    return [
        Share(tuple(node.cores[index] for index in sorted(row[rank] for row in dealt)), (node,))
        for rank in range(ranks)
    ]


def _kinds(cores: Sequence[Core]) -> list[int]:
    """Number the kinds of cores from the largest on; capacities within a fifth of each other are one kind."""
    steps = sorted({core.capacity for core in cores}, reverse=True)
    kind = dict.fromkeys(steps[:1], 0)
    for larger, smaller in itertools.pairwise(steps):
        kind[smaller] = kind[larger] + (smaller < 0.8 * larger)
    return [kind[core.capacity] for core in cores]


def _whole_nodes(nodes: Sequence[Node], ranks: int) -> list[tuple[Node, ...]]:
    """Return a group of neighbouring nodes for each rank, the smallest as large as possible; empty if impossible."""
    for cores in range(_size(nodes) // ranks, 0, -1) if ranks < len(nodes) else ():
        groups: list[tuple[Node, ...]] = []
        open_group: tuple[Node, ...] = ()
        for node in nodes:
            open_group = (*open_group, node)
            if _size(open_group) >= cores:
                groups.append(open_group)
                open_group = ()
        if len(groups) >= ranks:
            return groups[:ranks]
    return []
