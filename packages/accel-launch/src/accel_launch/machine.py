# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a plan has to know of one machine: its cores and memory, its devices, and the variables that restrict them.

    python -m accel_launch.machine

prints this machine as JSON; launchers run it on the other hosts. Cores and memory are read from /sys, the affinity and
the cpuset; `accel_core.vendor.numa` has the part that needs no cores.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel_core.api import get_accelerator
from accel_core.vendor import Feature, system_root
from accel_core.vendor.numa import (
    SYSTEM,
    NumaNode,
    allowed_cpus,
    listed_nodes,
    online_cpus,
    process_status,
    read_cpu_list,
    read_nodes,
)
from accel_launch.plan import AS_LIST, InvalidData, from_data, to_data

_NODES = f"{SYSTEM}/node"
_TIERS = "sys/devices/virtual/memory_tiering"


@dataclass(frozen=True)
class Memory:
    """The NUMA nodes as memory.

    A node without CPUs is HBM in flat mode, or a CXL card, which is slower than the processors' memory. Newer kernels
    state a bandwidth, or a tier. Where they state neither, one such node for each of at least two nodes with CPUs is
    taken for HBM, as the `deepspeed` launcher does.

    usable: nodes with memory that this process may use. fast: by node with CPUs, its nodes with faster memory."""

    usable: frozenset[int]
    fast: dict[int, tuple[int, ...]]


def read_memory(root: Path, *, complete: bool, allowed: Collection[int]) -> Memory:
    """Describe the memory under `root`.

    complete: all CPUs are online, so that a node without CPUs never had any. allowed: nodes of Mems_allowed_list;
    empty: all.
    """
    nodes = listed_nodes(root)
    with_cpus = [number for number, cpus in nodes if cpus]
    populated = read_cpu_list(root / _NODES / "has_memory")
    usable = {
        number
        for number, _ in nodes
        if (populated is None or number in populated) and (not allowed or number in allowed)
    }
    memory_only = [number for number, cpus in nodes if not cpus and (not populated or number in populated)]
    fast: dict[int, list[int]] = {}
    paired = complete and len(memory_only) == len(with_cpus) >= 2
    for position, number in enumerate(memory_only):
        home = _home(root, number, nodes) if with_cpus else None
        if home is None and paired:
            home = with_cpus[position]
        if home is None or number not in usable:
            continue
        faster = _faster(root, number, home)
        if paired if faster is None else faster:
            fast.setdefault(home, []).append(number)
    return Memory(frozenset(usable), {home: tuple(own) for home, own in fast.items()})


def _home(root: Path, number: int, nodes: list[tuple[int, frozenset[int]]]) -> int | None:
    """Return the node with CPUs that is nearest to a node without; None if unknown, or if several are."""
    with_cpus = [other for other, cpus in nodes if cpus]
    initiators = (root / _NODES / f"node{number}/access0/initiators").glob("node[0-9]*")
    names = {path.name for path in initiators}
    near = [other for other in with_cpus if f"node{other}" in names]
    if not near:
        try:
            row = [int(item) for item in (root / _NODES / f"node{number}/distance").read_text().split()]
        except (OSError, ValueError):
            return None
        if len(row) != len(nodes):
            return None
        distance = {other: row[column] for column, (other, _) in enumerate(nodes) if other in with_cpus}
        near = [other for other in with_cpus if distance[other] == min(distance.values())]
    return near[0] if len(near) == 1 else None


def _faster(root: Path, number: int, home: int) -> bool | None:
    """Whether a node's memory is faster than that of `home`; None if the kernel does not say."""
    bandwidths = [_bandwidth(root, node) for node in (number, home)]
    if all(bandwidths):
        return bandwidths[0] > bandwidths[1]
    tiers = [_tier(root, node) for node in (number, home)]
    if tiers[0] is None or tiers[1] is None or tiers[0] == tiers[1]:
        return None
    return tiers[0] < tiers[1]


def _bandwidth(root: Path, number: int) -> int:
    """Return MB/s, 0 if unknown."""
    try:
        return int((root / _NODES / f"node{number}/access0/initiators/read_bandwidth").read_text())
    except (OSError, ValueError):
        return 0


def _tier(root: Path, number: int) -> int | None:
    """Return the tier of a node's memory, the fastest first; None if unknown."""
    for folder in (root / _TIERS).glob("memory_tier[0-9]*"):
        digits = folder.name.removeprefix("memory_tier")
        for name in ("nodelist", "nodes"):
            if digits.isdecimal() and number in (read_cpu_list(folder / name) or ()):
                return int(digits)
    return None


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
    messages.
    """

    nodes: tuple[Node, ...]
    online: tuple[int, ...] = field(metadata=AS_LIST)
    present: tuple[int, ...] = field(metadata=AS_LIST)

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


def read_topology(root: Path, allowed: Iterable[int] | None = None) -> Topology:
    """Return the topology under `root`; `allowed` (affinity and cpuset) is that of this process if None.

    Raises `InvalidCpuList`.
    """
    usable = allowed_cpus(root) if allowed is None else frozenset(allowed)
    nodes = read_nodes(root, usable)
    online = online_cpus(root) or usable
    present = read_cpu_list(root / SYSTEM / "cpu/present") or frozenset(range(max(online) + 1))
    complete = online >= present
    described = read_memory(root, complete=complete, allowed=process_status(root, "Mems_allowed_list"))
    capacity = _Capacities(root, complete)
    built = (_node(root, node, described, capacity) for node in nodes)
    return Topology(
        nodes=tuple(sorted(built, key=lambda node: (node.cores[0].socket, node.number))),
        online=tuple(sorted(online)),
        present=tuple(sorted(present | online)),
    )


def _node(root: Path, node: NumaNode, described: Memory, capacity: _Capacities) -> Node:
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


if TYPE_CHECKING:
    from accel_core.interface import DeepSpeedAccelerator

#: Stands for an unknown NUMA node, as in /sys.
UNKNOWN = -1


@dataclass(frozen=True)
class Accelerator:
    """What a plan needs of an accelerator's interface.

    ranks_are_devices: False for the CPU, whose ranks share the machine's cores. visible: names of the variables that
    restrict a process to some devices. set_visible: writes them for the given devices. exports: prefixes of variables
    that ranks on other hosts need. restricts: False if the runtime does not read `visible`: it gives each process
    one of the devices that a variable of its own leaves, by the local rank.
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
    visible-devices variable restricts this process, None if it is not set. device_nodes: NUMA node of each device,
    `UNKNOWN` if /sys does not tell; may be shorter.
    """

    topology: Topology
    devices: int
    mask: tuple[str, ...] | None = None
    device_nodes: tuple[int, ...] = ()

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
    return _described(get_accelerator())


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Return this machine, or with `ACCEL_SYSROOT` those of a recorded one's cores."""
    # Before torch is imported, whose OpenMP runtime may bind the calling thread.
    machine = read_topology(system_root())
    device = get_accelerator()
    described = _described(device)
    masks = described.visible if described.restricts else ()
    mask = next((environ[name] for name in masks if environ.get(name)), None)
    return Machine(
        topology=machine,
        devices=device.device_count() if described.ranks_are_devices else len(machine.nodes),
        mask=None if mask is None else tuple(item.strip() for item in mask.split(",") if item.strip()),
        device_nodes=_device_nodes(system_root(), device) if described.ranks_are_devices else (),
    )


def _described(device: DeepSpeedAccelerator) -> Accelerator:
    ranks_are_devices = device.device_name() != "cpu"  # torch's device type
    return Accelerator(
        name=device.device_name(),
        ranks_are_devices=ranks_are_devices,
        visible=tuple(device.visible_devices_envs()),
        set_visible=device.set_visible_devices_envs,
        exports=tuple(device.export_envs()),
        # Ranks on CPUs are counted by the mask, though torch has one CPU.
        restricts=not ranks_are_devices or Feature.INDEXED_DEVICES not in getattr(device, "traits", {}),
    )


def _device_nodes(root: Path, device: DeepSpeedAccelerator) -> tuple[int, ...]:
    properties = getattr(getattr(device, "device_module", None), "get_device_properties", None)
    if properties is None:
        return ()
    return tuple(_device_node(root, properties, index) for index in range(device.device_count()))


def _device_node(root: Path, properties: Callable[[int], Any], index: int) -> int:
    """Return the NUMA node of the device's PCI address, if the runtime knows one and /sys that device."""
    try:
        found = properties(index)
        address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
        return max(int((root / "sys/bus/pci/devices" / address / "numa_node").read_text()), UNKNOWN)
    except (AttributeError, AssertionError, OSError, RuntimeError, TypeError, ValueError):
        return UNKNOWN


def main() -> int:
    """Print this machine."""
    sys.stdout.write(f"{this_machine().to_json()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
