# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes as memory: which have any, and which without CPUs are faster than the processors' own (HBM).

A node without CPUs is HBM in flat mode, or a CXL card, which is slower than the processors' memory. Newer kernels
state a bandwidth, or a tier. Where they state neither, one such node for each of at least two nodes with CPUs is taken
for HBM, as the `deepspeed` launcher does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from accel_core.vendor.numa import SYSTEM, listed_nodes, read_cpu_list

_NODES = f"{SYSTEM}/node"
_TIERS = "sys/devices/virtual/memory_tiering"


@dataclass(frozen=True)
class Memory:
    """usable: nodes with memory that this process may use. fast: by node with CPUs, its nodes with faster memory."""

    usable: frozenset[int]
    memory_only: tuple[int, ...]
    fast: dict[int, tuple[int, ...]]


def read(root: Path, *, complete: bool, allowed: Collection[int]) -> Memory:
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
    return Memory(frozenset(usable), tuple(memory_only), {home: tuple(own) for home, own in fast.items()})


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
