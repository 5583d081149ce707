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
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from accel_core.api import get_accelerator
from accel_core.data import InvalidData, NumberList, from_data, to_data
from accel_core.vendor import Feature, system_root
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
    initiators = (root / _NODES / f"node{number}/access0/initiators").glob("node[0-9]*")
    names = {path.name for path in initiators}
    near = [other for other in with_cpus if f"node{other}" in names]
    if not near:
        row = text_of(root / _NODES / f"node{number}/distance").split()
        if len(row) != len(nodes) or not all(map(str.isdecimal, row)):
            return None
        distance = {other: int(row[nodes.index(other)]) for other in with_cpus}
        near = [other for other in with_cpus if distance[other] == min(distance.values())]
    return near[0] if len(near) == 1 else None


def _faster(root: Path, number: int, home: int) -> bool | None:
    """Whether a node's memory is faster than that of `home`; None if the kernel does not say."""
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
    """The usable part of a machine.

    nodes: by socket, then number. online: all CPUs that are switched on, present: all that the machine has; both for
    messages.
    """

    nodes: tuple[Node, ...]
    online: NumberList
    present: NumberList

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
    return Topology(
        nodes=tuple(sorted(nodes, key=lambda node: (node.cores[0].socket, node.number))),
        online=tuple(sorted(online)),
        present=tuple(sorted(present | online)),
    )


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
    None if /sys does not have it; empty if /sys has it for none.
    """

    topology: Topology
    devices: int
    mask: tuple[str, ...] | None = None
    device_nodes: tuple[int | None, ...] = ()

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
    device = get_accelerator()
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


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Return this machine, or with `ACCEL_SYSROOT` those of a recorded one's cores."""
    # Before torch is imported, whose OpenMP runtime may bind the calling thread.
    topology = read_topology(system_root())
    described, device = accelerator(), get_accelerator()
    masks = described.visible if described.restricts else ()
    mask = next((environ[name] for name in masks if environ.get(name)), None)
    return Machine(
        topology=topology,
        devices=device.device_count() if described.ranks_are_devices else len(topology.nodes),
        mask=None if mask is None else tuple(item.strip() for item in mask.split(",") if item.strip()),
        device_nodes=_device_nodes(system_root(), device) if described.ranks_are_devices else (),
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
