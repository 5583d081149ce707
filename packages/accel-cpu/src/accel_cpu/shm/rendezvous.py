# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group find out whether they can share memory, and come to share it.

They exchange facts through torch's store. Every rank draws the same conclusion from them: all of them use shared
memory, or none does. `RankFacts` alone reads what another rank wrote: its values have the right types, in range.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import PrefixStore  # not exported by torch.distributed

from accel_core.errors import in_short
from accel_cpu.exchange import Exchange, shown
from accel_cpu.shm import library, segment

#: Bytes of shared memory of one group, and of all groups of a process.
GROUP_BYTES = 8 << 20
TOTAL_BYTES = 32 << 20
#: How long a rank waits busily before it sleeps, if every rank has a CPU.
SPIN_US = 100
#: Bytes of the segments that this process has created, by group.
_created: dict[Any, int] = {}


#: The most that Linux can be set to: PID_MAX_LIMIT, descriptors (nr_open) and CPUs (NR_CPUS).
_LIMITS = {
    "pid": (1, 1 << 22),
    "processes": (0, (1 << 64) - 1),
    "user": (0, (1 << 32) - 1),
    "cpus": (0, (1 << 8192) - 1),
    "fd": (-1, 1 << 30),
    "nonce": (0, (1 << segment.NONCE_BITS) - 1),
}
_LONGEST = 1000


@dataclass(frozen=True)
class RankFacts:
    """problem: why this process cannot share memory; empty: it can. fd, nonce: of the segment, which rank 0 has.

    cpus: a bit for each one that the process may use.
    """

    pid: int
    problem: str = ""
    host: str = ""
    processes: int = 0
    user: int = 0
    cpus: int = 0
    fd: int = -1
    nonce: int = 0

    def to_text(self) -> str:
        """Return the facts as `from_text` reads them."""
        return json.dumps({**dataclasses.asdict(self), "problem": self.problem[:_LONGEST]})

    @classmethod
    def from_text(cls, text: str) -> RankFacts:
        """Return the facts of another rank; raises ValueError for anything that `to_text` cannot have written."""
        try:
            given = json.loads(text)
        except RecursionError as error:
            raise ValueError("too deep") from error
        if type(given) is not dict or given.keys() != {field.name for field in dataclasses.fields(cls)}:
            raise ValueError("not the facts of a rank")
        for name, value in given.items():
            least, most = _LIMITS.get(name, (0, _LONGEST))
            number = value if name in _LIMITS else len(value) if type(value) is str else None
            if type(number) is not int or not least <= number <= most:
                raise ValueError(f"{name} is out of range")
        return cls(**given)


def join(store: Any, rank: int, ranks: int, timeout_ms: int) -> tuple[Any, str, list[list[int]]]:
    """Make the ranks of the store share memory with those of their host, if all of them can. Called by all ranks.

    Returns this rank's `accel_shm.Group`, or None; a sentence: whether the ranks share memory, or why not; and the
    ranks of each host. Raises StoreTampered, and what the store does. timeout_ms: of a collective.
    """
    hosts: list[list[int]] = [list(range(ranks))]
    size = min(GROUP_BYTES if ranks > 1 else GROUP_BYTES // 16, (TOTAL_BYTES - sum(_created.values())) // 2)
    mine = _facts(size if rank == 0 else 0)
    exchange = Exchange(store, rank, ranks, "facts", "joined")
    try:
        facts, reason = _read(exchange.all_gather(mine.to_text()))
        reason = reason or _obstacle(facts)
        group, failure = None, reason
        if not reason:
            hosts = _hosts(facts)
            if len(hosts) == 1:
                group, failure = _join(facts, rank, timeout_ms)
            else:
                number, host = next((i, host) for i, host in enumerate(hosts) if rank in host)
                among = PrefixStore(f"host{number}", store)
                group, why, _ = join(among, host.index(rank), len(host), timeout_ms)
                failure = why if group is None else ""
        try:
            failures = exchange.all_gather(failure)
        except BaseException:
            if group is not None:
                leave(group)
            raise
    finally:
        if mine.fd >= 0:
            os.close(mine.fd)
    failed = [f"rank {peer}: {shown(text)}" for peer, text in enumerate(failures) if text]
    if not failed:
        if rank == 0 and len(hosts) == 1:
            _created[group] = size
        shared = " + ".join(str(len(host)) for host in hosts)
        on = f" on {len(hosts)} hosts" if len(hosts) > 1 else ""
        return group, f"shared memory of {shared} processes{on}", hosts
    if group is not None:
        leave(group)
    return None, reason or "; ".join(failed), hosts


def leave(group: Any) -> None:
    """Give a group's memory back. The segment is gone when its last rank has left or ended."""
    _created.pop(group, None)
    group.close()


def _facts(size: int) -> RankFacts:
    """Return what the others have to know of this process; it creates a segment of `size` bytes, unless 0."""
    try:
        library.load()
        return RankFacts(
            os.getpid(),
            "",
            Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            os.stat("/proc/self/ns/pid").st_ino,
            os.geteuid(),
            sum(1 << cpu for cpu in os.sched_getaffinity(0)),
            *(segment.create(size) if size else ()),
        )
    except Exception as error:
        # Whatever the machine lacks: gloo does without.
        return RankFacts(os.getpid(), in_short(error) or type(error).__name__)


def _read(texts: Sequence[str]) -> tuple[list[RankFacts], str]:
    """Return the facts of all ranks, and why some cannot be read; empty if all can."""
    facts = []
    for rank, text in enumerate(texts):
        try:
            facts.append(RankFacts.from_text(text))
        except ValueError as error:
            return [], f"rank {rank} wrote what cannot be read: {shown(str(error))}"
    return facts, ""


def _obstacle(facts: Sequence[RankFacts]) -> str:
    """Return why these ranks cannot share memory; empty if they can try."""
    for rank, fact in enumerate(facts):
        if fact.problem:
            return f"rank {rank}: {shown(fact.problem)}"
    if len({fact.user for fact in facts}) > 1:
        return "the ranks belong to different users"
    hosts = _hosts(facts)
    if len(hosts) == len(facts) > 1:
        one_host = len({fact.host for fact in facts}) == 1
        return f"the ranks are {'in different containers' if one_host else 'on different hosts'}"
    for host in hosts:
        if len({facts[rank].pid for rank in host}) < len(host):
            return "several ranks are in one process"
    return ""


def _hosts(facts: Sequence[RankFacts]) -> list[list[int]]:
    """Return the ranks of each host; a container is its own host."""
    hosts: dict[tuple[str, int], list[int]] = {}
    for rank, fact in enumerate(facts):
        hosts.setdefault((fact.host, fact.processes), []).append(rank)
    return list(hosts.values())


def _join(facts: Sequence[RankFacts], rank: int, timeout_ms: int) -> tuple[Any, str]:
    """Return this rank's group, or why it has none."""
    pids = tuple(fact.pid for fact in facts)
    cpus = functools.reduce(operator.or_, (fact.cpus for fact in facts)).bit_count()
    spin_us = SPIN_US if cpus >= len(facts) else 0
    fd = -1
    try:
        fd = facts[0].fd if rank == 0 else segment.open_of(facts[0].pid, facts[0].fd)
        size = segment.checked_size(fd, facts[0].nonce)
        return library.load().join(fd, size, rank, pids, spin_us, timeout_ms), ""
    except OSError as error:
        return None, f"cannot share the memory of rank 0: {error.strerror}"
    finally:
        if rank != 0 and fd >= 0:
            os.close(fd)
