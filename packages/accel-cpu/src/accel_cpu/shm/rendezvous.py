# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group find out whether they can share memory, and come to share it.

They exchange facts through torch's store. Every rank draws the same conclusion from them: all of them use shared
memory, or none does. `RankFacts` alone reads what another rank wrote: its values have the right types, in range.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import PrefixStore  # not exported by torch.distributed

from accel_core.errors import in_short
from accel_cpu.exchange import Exchange, shown
from accel_cpu.shm import library

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
    "fd": (-1, 1 << 30),
}
_MOST_CPUS, _LONGEST = 8192, 1000


@dataclass(frozen=True)
class RankFacts:
    """problem: why this process cannot share memory; empty: it can. fd, nonce: of the segment, which rank 0 has."""

    pid: int
    problem: str = ""
    host: str = ""
    processes: int = 0
    user: int = 0
    cpus: tuple[int, ...] = ()
    fd: int = -1
    nonce: bytes = bytes(library.NONCE)

    def to_text(self) -> str:
        """Return the facts as `from_text` reads them."""
        values = dataclasses.asdict(self)
        return json.dumps({**values, "nonce": self.nonce.hex(), "problem": self.problem[:_LONGEST]})

    @classmethod
    def from_text(cls, text: str) -> RankFacts:
        """Return the facts of another rank; raises ValueError for anything that `to_text` cannot have written."""
        try:
            given = json.loads(text)
        except RecursionError as error:
            raise ValueError("too deep") from error
        names = {field.name for field in dataclasses.fields(cls)}
        if type(given) is not dict or given.keys() != names:
            raise ValueError("not the facts of a rank")
        cpus = given["cpus"] if type(given["cpus"]) is list else [-1]
        right = {
            name: type(given[name]) is str and len(given[name]) <= _LONGEST
            for name in ("problem", "host", "nonce")
        }
        right |= {name: _in_range(given[name], *limits) for name, limits in _LIMITS.items()}
        right["cpus"] = len(cpus) <= _MOST_CPUS and all(_in_range(cpu, 0, _MOST_CPUS - 1) for cpu in cpus)
        nonce = bytes.fromhex(given["nonce"]) if right["nonce"] else b""
        right["nonce"] = len(nonce) == library.NONCE
        if wrong := [name for name, is_right in right.items() if not is_right]:
            raise ValueError(f"{wrong[0]} is out of range")
        return cls(**{**given, "cpus": tuple(cpus), "nonce": nonce})


def _in_range(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def join(store: Any, rank: int, ranks: int) -> tuple[Any, str, list[list[int]]]:
    """Make the ranks of the store share memory with those of their host, if all of them can. Called by all ranks.

    Returns this rank's `accel_shm.Group`, or None; a sentence: whether the ranks share memory, or why not; and the
    ranks of each host. Raises StoreTampered, and what the store does.
    """
    hosts: list[list[int]] = [list(range(ranks))]
    size = min(GROUP_BYTES if ranks > 1 else GROUP_BYTES // 16, (TOTAL_BYTES - sum(_created.values())) // 2)
    segment = _create(ranks, size) if rank == 0 else None
    exchange = Exchange(store, rank, ranks, "facts", "joined")
    try:
        facts, reason = _read(exchange.all_gather(_facts(segment).to_text()))
        reason = reason or _obstacle(facts)
        group, failure = None, reason
        if not reason:
            hosts = _hosts(facts)
            if len(hosts) == 1:
                group, failure = _join(facts, rank, segment)
            else:
                number, mine = next((i, host) for i, host in enumerate(hosts) if rank in host)
                group, why, _ = join(PrefixStore(f"host{number}", store), mine.index(rank), len(mine))
                failure = why if group is None else ""
        try:
            failures = exchange.all_gather(failure)
        except BaseException:
            if group is not None:
                leave(group)
            raise
    finally:
        if segment is not None and segment[0] >= 0:
            os.close(segment[0])
    failed = [f"rank {peer}: {shown(text)}" for peer, text in enumerate(failures) if text]
    if not failed:
        if group is not None and segment is not None and len(hosts) == 1:
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


def _facts(segment: tuple[int, bytes] | None) -> RankFacts:
    """Return what the others have to know of this process."""
    fd, nonce = segment or (-1, bytes(library.NONCE))
    try:
        library.load()
        return RankFacts(
            pid=os.getpid(),
            problem=f"no shared memory: {os.strerror(-fd)}" if segment and fd < 0 else "",
            host=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            processes=os.stat("/proc/self/ns/pid").st_ino,
            user=os.geteuid(),
            cpus=tuple(sorted(os.sched_getaffinity(0))),
            fd=max(fd, -1),
            nonce=nonce,
        )
    except Exception as error:
        # Whatever the machine lacks: gloo does without.
        return RankFacts(os.getpid(), in_short(error) or type(error).__name__)


def _create(ranks: int, size: int) -> tuple[int, bytes]:
    """Return the descriptor of a new segment, or a negative errno, and its nonce."""
    nonce = secrets.token_bytes(library.NONCE)
    try:
        return library.load().create(ranks, size, nonce), nonce
    except OSError as error:
        return -(error.errno or 1), nonce
    except Exception:
        return -1, nonce  # said by _facts


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
        meaning = (
            "on different hosts" if len({fact.host for fact in facts}) > 1 else "in different containers"
        )
        return f"the ranks are {meaning}"
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


def _join(facts: Sequence[RankFacts], rank: int, segment: tuple[int, bytes] | None) -> tuple[Any, str]:
    """Return this rank's group, or why it has none."""
    pids = tuple(fact.pid for fact in facts)
    cpus = {cpu for fact in facts for cpu in fact.cpus}
    try:
        fd = segment[0] if segment else _open(facts[0].pid, facts[0].fd)
    except OSError as error:
        return None, f"cannot open the memory of rank 0: {error.strerror}"
    try:
        # It checks that the segment is the one with this nonce.
        return library.load().join(
            fd, rank, facts[0].nonce, pids, SPIN_US if len(cpus) >= len(facts) else 0
        ), ""
    except OSError as error:
        return None, f"cannot share the memory of rank 0: {error.strerror}"
    finally:
        if not segment:
            os.close(fd)


def _open(pid: int, number: int) -> int:
    """Open what a process has open under a number: the segment has no name. Raises OSError for anything else."""
    # O_PATH does nothing to the file: only a file without a name, of this user, is then opened to be written.
    place = os.open(f"/proc/{pid}/fd/{number}", os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink or found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return os.open(f"/proc/self/fd/{place}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(place)
