# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group find out whether they can share memory, and come to share it.

They exchange facts through torch's store. Every rank draws the same conclusion from the same facts, so that either
all of them use shared memory or none does.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_core.errors import in_short
from accel_cpu.shm import library

#: Bytes of shared memory of one group, and of all groups of a process.
GROUP_BYTES = 8 << 20
TOTAL_BYTES = 32 << 20
#: How long a rank waits busily before it sleeps, if every rank has a CPU.
SPIN_US = 100
#: Bytes of the segments that this process has created, by handle.
_created: dict[int, int] = {}


@dataclass(frozen=True)
class Joined:
    """A rank's handle of the shared segment; without one, the reason why the ranks do not share memory."""

    handle: int | None
    reason: str


def join(store: Any, rank: int, ranks: int) -> Joined:
    """Make the ranks of the store share memory, if all of them can. Called by all ranks; raises what the store does."""
    size = min(GROUP_BYTES, (TOTAL_BYTES - sum(_created.values())) // 2)
    segment = _create(ranks, size) if rank == 0 else None
    mine = _facts(segment)
    store.set(f"facts/{rank}", json.dumps(mine))
    facts = [json.loads(store.get(f"facts/{peer}")) for peer in range(ranks)]
    reason = _obstacle(facts)
    try:
        handle, failure = (None, reason) if reason else _join(facts, rank, segment)
        store.set(f"joined/{rank}", failure)
        failures = {peer: store.get(f"joined/{peer}").decode() for peer in range(ranks)}
    finally:
        if segment is not None and segment[0] >= 0:
            os.close(segment[0])
    failed = [f"rank {peer}: {text}" for peer, text in failures.items() if text]
    if not failed:
        if handle is not None and segment is not None:
            _created[handle] = size
        return Joined(handle, f"shared memory of {ranks} processes")
    if handle is not None:
        library.load().accel_shm_leave(handle)
    return Joined(None, reason or "; ".join(failed))


def leave(handle: int) -> None:
    """Give a handle's memory back. The segment is gone when its last rank has left or ended."""
    _created.pop(handle, None)
    library.load().accel_shm_leave(handle)


def _facts(segment: tuple[int, str] | None) -> dict[str, Any]:
    """Return what the others have to know of this process."""
    facts: dict[str, Any] = {"pid": os.getpid(), "problem": ""}
    try:
        library.load()
        facts["host"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        facts["processes"] = os.stat("/proc/self/ns/pid").st_ino
        facts["user"] = os.geteuid()
        facts["cpus"] = sorted(os.sched_getaffinity(0))
    except Exception as error:
        # Whatever the machine lacks: gloo does without.
        facts["problem"] = in_short(error) or type(error).__name__
    if segment is not None:
        facts["fd"], facts["nonce"] = segment
        if segment[0] < 0:
            facts["problem"] = facts["problem"] or f"no shared memory: {os.strerror(-segment[0])}"
    return facts


def _create(ranks: int, size: int) -> tuple[int, str]:
    """Return the descriptor of a new segment, or a negative errno, and its nonce."""
    nonce = secrets.token_bytes(library.NONCE)
    try:
        fd = int(library.load().accel_shm_create(ranks, size, nonce))
    except Exception:
        return -1, ""  # said by _facts
    return fd, nonce.hex()


def _obstacle(facts: list[dict[str, Any]]) -> str:
    """Return why these ranks cannot share memory; empty if they can try."""
    for rank, fact in enumerate(facts):
        if fact["problem"]:
            return f"rank {rank}: {fact['problem']}"
    for name, meaning in (("host", "on different hosts"), ("processes", "in different containers")):
        if len({fact[name] for fact in facts}) > 1:
            return f"the ranks are {meaning}"
    if len({fact["user"] for fact in facts}) > 1:
        return "the ranks belong to different users"
    if len({fact["pid"] for fact in facts}) < len(facts):
        return "several ranks are in one process"
    return ""


def _join(facts: list[dict[str, Any]], rank: int, segment: tuple[int, str] | None) -> tuple[int | None, str]:
    """Return the handle, or why this rank has none."""
    ranks = len(facts)
    pids = (ctypes.c_int32 * ranks)(*(fact["pid"] for fact in facts))
    cpus = {cpu for fact in facts for cpu in fact["cpus"]}
    error = ctypes.c_int32(0)
    try:
        # The descriptor of rank 0: the segment has no name. The library checks that it is the one with this nonce.
        fd = (
            segment[0]
            if segment
            else os.open(f"/proc/{pids[0]}/fd/{facts[0]['fd']}", os.O_RDWR | os.O_CLOEXEC)
        )
        try:
            handle = library.load().accel_shm_join(
                fd,
                rank,
                ranks,
                bytes.fromhex(facts[0]["nonce"]),
                pids,
                SPIN_US if len(cpus) >= ranks else 0,
                ctypes.byref(error),
            )
        finally:
            if not segment:
                os.close(fd)
    except OSError as failure:
        return None, f"cannot open the memory of rank 0: {failure.strerror}"
    return (
        (handle, "") if handle else (None, f"cannot share the memory of rank 0: {os.strerror(error.value)}")
    )
