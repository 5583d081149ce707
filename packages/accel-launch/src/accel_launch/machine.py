# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Facts of one machine for a plan: its cores and memory, each rank's share of them, and its devices.

    python -m accel_launch.machine

prints this machine as JSON; launchers run it on the other hosts. Cores and memory are read from /sys, the affinity and
the cpuset; `accel_core.vendor.numa` has the part that needs no cores.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from accel_core.api import get_accelerator
from accel_core.data import InvalidData, NumberList, from_data, to_data
from accel_core.processes import stdout_to_stderr
from accel_core.vendor import Feature, InvalidCpuList, format_cpu_list, parse_cpu_list, system_root
from accel_core.vendor.numa import (
    SYSTEM,
    allowed_cpus,
    listed_nodes,
    online_cpus,
    process_status,
    read_cpu_list,
    read_nodes,
    text_of,
)
from accel_launch.errors import BindingImpossible
from accel_launch.plan import MemoryPolicy

if TYPE_CHECKING:
    from accel_core.interface import DeepSpeedAccelerator

_NODES = f"{SYSTEM}/node"
_TIERS = "sys/devices/virtual/memory_tiering"


def _read_memory(root: Path, complete: bool) -> tuple[set[int], dict[int, tuple[int, ...]]]:
    """Return the NUMA nodes whose memory this process may use; and by node with CPUs, its nodes with faster memory.

    A node without CPUs is HBM in flat mode, or a CXL card, which is slower than the processors' memory. Newer kernels
    state a bandwidth, or a tier. Where they state neither, one such node for each of at least two nodes with CPUs is
    taken for HBM, as the `deepspeed` launcher does.

    complete: all CPUs are online, so that a node without CPUs never had any.
    """
    nodes = dict(listed_nodes(root))
    allowed = process_status(root, "Mems_allowed_list")
    populated = read_cpu_list(root / _NODES / "has_memory")
    with_cpus = [number for number, cpus in nodes.items() if cpus]
    usable = {n for n in nodes if (populated is None or n in populated) and (not allowed or n in allowed)}
    memory_only = [n for n, cpus in nodes.items() if not cpus and (not populated or n in populated)]
    paired = complete and len(memory_only) == len(with_cpus) >= 2
    fast: dict[int, tuple[int, ...]] = {}
    for position, number in enumerate(memory_only):
        home = _home(root, number, list(nodes), with_cpus)
        if home is None and paired:
            home = with_cpus[position]
        if home is None or number not in usable:
            continue
        faster = _faster(root, number, home)
        if paired if faster is None else faster:
            fast[home] = (*fast.get(home, ()), number)
    return usable, fast


def _home(root: Path, number: int, nodes: list[int], with_cpus: list[int]) -> int | None:
    """Return the node with CPUs that is nearest to a node without; None if unknown, or if several are."""
    row = text_of(root / _NODES / f"node{number}/distance").split()
    if len(row) != len(nodes) or not all(map(str.isdecimal, row)):
        return None
    distance = {other: int(row[nodes.index(other)]) for other in with_cpus}
    near = [other for other in with_cpus if distance[other] == min(distance.values())]
    return near[0] if len(near) == 1 else None


def _faster(root: Path, number: int, home: int) -> bool | None:
    """True if a node's memory is faster than that of `home`; None if the kernel does not say."""
    bandwidths = [
        _number(root / _NODES / f"node{node}/access0/initiators/read_bandwidth") for node in (number, home)
    ]
    if min(bandwidths) > 0:
        return bandwidths[0] > bandwidths[1]
    tiers = [_tier(root, node) for node in (number, home)]
    if tiers[0] is None or tiers[1] is None or tiers[0] == tiers[1]:
        return None
    return tiers[0] < tiers[1]


def _tier(root: Path, number: int) -> int | None:
    """Return the tier of a node's memory, the fastest first; None if unknown."""
    for folder in (root / _TIERS).glob("memory_tier[0-9]*"):
        digits = folder.name.removeprefix("memory_tier")
        for name in ("nodelist", "nodes"):
            if digits.isdecimal() and number in (read_cpu_list(folder / name) or ()):
                return int(digits)
    return None


def _number(path: Path) -> int:
    """Return the number in a file; -1 if there is none."""
    text = text_of(path).strip()
    return int(text) if text.isdecimal() else -1


@dataclass(frozen=True)
class Core:
    """A physical core with its usable hardware threads, ascending.

    capacity: computing power relative to the machine's other cores; differs on hybrid processors only.
    """

    cpus: NumberList
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
    numbers: NumberList
    memory: NumberList
    fast_memory: NumberList


@dataclass(frozen=True)
class Topology:
    """The usable part of a machine. nodes: by socket, then number."""

    nodes: tuple[Node, ...]

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
        return Topology(tuple(nodes))


def read_topology(root: Path, allowed: Iterable[int] | None = None) -> Topology:
    """Return the topology under `root`; `allowed` (affinity and cpuset) is that of this process if None.

    Raises `InvalidCpuList`.
    """
    usable = allowed_cpus(root) if allowed is None else frozenset(allowed)
    online = online_cpus(root) or usable
    present = read_cpu_list(root / SYSTEM / "cpu/present") or frozenset(range(max(online) + 1))
    complete = online >= present
    memory, fast = _read_memory(root, complete)
    nodes = (
        Node(
            number=node.number,
            cores=tuple(_cores(root, node.cpus, complete)),
            numbers=node.numbers,
            memory=tuple(number for number in node.numbers if number in memory),
            fast_memory=fast.get(node.number, ()),
        )
        for node in read_nodes(root, usable)
    )
    return Topology(tuple(sorted(nodes, key=lambda node: (node.cores[0].socket, node.number))))


def _cores(root: Path, cpus: tuple[int, ...], complete: bool) -> Iterable[Core]:
    small = read_cpu_list(root / "sys/devices/cpu_atom/cpus") or frozenset()
    rest = set(cpus)
    for cpu in cpus:
        if cpu not in rest:
            continue
        folder = root / SYSTEM / f"cpu/cpu{cpu}"
        siblings = read_cpu_list(folder / "topology/core_cpus_list") or read_cpu_list(
            folder / "topology/thread_siblings_list"
        )
        own = (siblings or frozenset()) & rest | {cpu}
        rest -= own
        # Arm's kernels state it, and the two kinds of Intel's hybrid processors. Else a core with more threads than
        # others is a larger one, unless siblings are offline.
        capacity = _number(folder / "cpu_capacity")
        if capacity <= 0:
            capacity = 512 if cpu in small else 1024 * (len(siblings or own) if complete else 1)
        yield Core(tuple(sorted(own)), max(_number(folder / "topology/physical_package_id"), 0), capacity)


# ------------------------------------------------------------------------------ the cores of each rank

# The physical cores of a NUMA node are divided evenly among its ranks; SMT siblings stay together. Ranks are spread so
# that the smallest share is as large as possible. A rank has several nodes only if there are fewer ranks than nodes,
# and then all of their cores.


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
            f"cannot bind ranks to cores: no core is left: --reserve_cores {reserve}, with at most "
            f"{max(len(n.cores) for n in topology.nodes)} cores a node",
            do="reserve fewer cores",
        )
    return Topology(tuple(nodes)), tuple(sorted(reserved))


def _listed(topology: Topology, text: str) -> frozenset[int]:
    try:
        cpus = parse_cpu_list(text, "--bind_core_list")
    except InvalidCpuList:
        cpus = frozenset()
    numbers = [int(digits) for digits in re.findall("[0-9]+", text)] if cpus else []
    found, expected = repr(text[:80]), "numbers and ranges in ascending order, each CPU once: 0-51,56-107"
    if cpus and numbers == sorted(numbers):
        if not (wrong := cpus - topology.cpus()):
            return cpus
        found = (
            f"CPUs {format_cpu_list(wrong)} of {text!r} do not exist, are offline, or are not allowed here"
        )
        expected = f"some of {format_cpu_list(topology.cpus())}, which affinity and cpuset (container) allow"
    raise BindingImpossible(
        f"cannot bind ranks to the cores of --bind_core_list: {found}; expected {expected}",
        do="correct the list, or leave it out to use all allowed cores",
    )


def divide(topology: Topology, ranks: int, near: Sequence[int | None] = ()) -> list[Share]:
    """Return the share of each rank, in the order of local ranks; raises `BindingImpossible`.

    near: for each rank the NUMA node of its device, None if unknown. Ranks are placed there if each can have a core.
    """
    nodes = topology.nodes
    if not 0 < ranks <= topology.core_count():
        raise BindingImpossible(
            f"cannot bind ranks to cores: more ranks than cores: {ranks} ranks, {topology.core_count()} "
            f"physical cores (CPUs {format_cpu_list(topology.cpus())})",
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


# --------------------------------------------------------------------------------- devices, and the whole


@dataclass(frozen=True)
class Accelerator:
    """The part of an accelerator's interface that a plan needs.

    ranks_are_devices: False for the CPU, whose ranks share the machine's cores. visible: names of the variables that
    restrict a process to some devices. set_visible: writes them for the given devices. exports: prefixes of variables
    that ranks on other hosts need. restricts: False if there is no such variable, or the runtime does not read it:
    rank i uses device i, of those that a variable of the runtime's own leaves.
    """

    name: str
    ranks_are_devices: bool
    visible: tuple[str, ...]
    set_visible: Callable[[MutableMapping[str, str], Sequence[str]], None]
    exports: tuple[str, ...] = ()
    restricts: bool = True


@dataclass(frozen=True)
class Machine:
    """One machine.

    devices: how many the accelerator sees; for the CPU, NUMA nodes with usable cores. mask: the devices to which the
    visible-devices variable restricts this process, None if it is not set. remarks: what of the variable the runtime
    does not use. later: a variable that chooses among these devices by their numbers, as `NAME=value`. device_nodes:
    NUMA node of each device, None if /sys does not have it; empty if /sys has it for none.
    """

    topology: Topology
    devices: int
    mask: tuple[str, ...] | None = None
    device_nodes: tuple[int | None, ...] = ()
    remarks: tuple[str, ...] = ()
    later: str = ""

    def to_json(self) -> str:
        """Return the machine as one line of JSON."""
        return json.dumps(to_data(self))

    @classmethod
    def from_json(cls, text: str) -> Machine:
        """Return the machine of `to_json`; raises `InvalidData`."""
        try:
            return from_data(cls, json.loads(text), "machine")
        except (ValueError, RecursionError) as error:
            raise InvalidData(str(error)) from error


def accelerator() -> Accelerator:
    """Return what the process's accelerator says of itself."""
    with stdout_to_stderr():
        device = get_accelerator()
    ranks_are_devices = device.device_name() != "cpu"  # torch's device type
    variables = tuple(device.visible_devices_envs())
    indexed = Feature.INDEXED_DEVICES not in getattr(device, "traits", {})
    return Accelerator(
        name=device.device_name(),
        ranks_are_devices=ranks_are_devices,
        visible=variables,
        set_visible=device.set_visible_devices_envs,
        exports=tuple(device.export_envs()),
        # Ranks on CPUs are counted by the mask, though torch has one CPU.
        restricts=not ranks_are_devices or (indexed and bool(variables)),
    )


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Return this machine, or with `ACCEL_SYSROOT` those of a recorded one's cores."""
    # Before torch is imported, whose OpenMP runtime may bind the calling thread.
    topology = read_topology(system_root())
    described, device = accelerator(), get_accelerator()
    with stdout_to_stderr():
        count = device.device_count() if described.ranks_are_devices else len(topology.nodes)
        nodes = _device_nodes(system_root(), device) if described.ranks_are_devices else ()
    rule = getattr(device, "visible", None) if described.ranks_are_devices else None
    later = next((f"{name}={environ[name]}" for name in rule.later if environ.get(name)), "") if rule else ""
    masks = described.visible if described.restricts and not later else ()
    mask = next((environ[name] for name in masks if environ.get(name)), "")
    used = rule.used(mask, count) if rule else [item.strip() for item in mask.split(",") if item.strip()]
    return Machine(
        topology=topology,
        devices=count,
        mask=tuple(used) if mask else None,
        remarks=tuple(rule.remarks(count, environ)) if rule else (),
        later=later,
        device_nodes=nodes,
    )


def _device_nodes(root: Path, device: DeepSpeedAccelerator) -> tuple[int | None, ...]:
    """Return the NUMA node of each device's PCI address, None where the runtime or /sys does not know it."""
    properties = getattr(getattr(device, "device_module", None), "get_device_properties", None)
    if properties is None:
        return ()
    nodes: list[int | None] = []
    for index in range(device.device_count()):
        try:
            found = properties(index)
            address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
            node = _number(root / "sys/bus/pci/devices" / address / "numa_node")
        except (AttributeError, AssertionError, OSError, RuntimeError, TypeError, ValueError):
            node = -1
        nodes.append(node if node >= 0 else None)
    return tuple(nodes)


def main() -> int:
    """Print this machine."""
    sys.stdout.write(f"{this_machine().to_json()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
