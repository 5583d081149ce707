# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stop or call something else; what the others raise."""

import os
import random
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from shm_jobs import reported, wait_until_told, while_it_waits


def _reduce_for(seconds: float, size: int = 300_000) -> None:
    until = time.monotonic() + seconds
    tensor = torch.ones(size)
    while time.monotonic() < until:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)


def lost(rank: int, ranks: int, victim: int, number: int, after: float) -> None:
    """One rank gets a signal in the middle of reductions."""
    if rank == victim:
        threading.Timer(after, os.kill, (os.getpid(), number)).start()
    _reduce_for(30)


def lost_at_random(rank: int, ranks: int, seed: int) -> None:
    """As `lost`, at a time and in a collective that the seed chooses."""
    choose = random.Random(seed)
    victim, after, size = choose.randrange(ranks), choose.random() * 0.3, choose.choice((1, 5000, 3_000_000))
    if rank == victim:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    tensor, gathered = torch.ones(size), torch.empty(size * ranks)
    for _ in range(10_000_000):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        dist.all_gather_into_tensor(gathered, tensor)


def waits_for_nobody(rank: int, ranks: int) -> None:
    """Rank 1 does not come to a barrier of a group that waits for 5 seconds."""
    dist.barrier()  # making the group has the same limit
    group = dist.new_group(timeout=timedelta(seconds=5))
    if rank == 1:
        wait_until_told("gave up")
        return
    try:
        dist.barrier(group=group)
    finally:
        reported("gave up")


def _call(what: str) -> None:
    tensor = torch.ones(4, 6)
    calls: dict[str, Any] = {
        "float32": lambda: dist.all_reduce(tensor),
        "bfloat16": lambda: dist.all_reduce(tensor.bfloat16()),
        "complex64": lambda: dist.all_reduce(tensor.to(torch.complex64)),
        "larger": lambda: dist.all_reduce(torch.ones(5, 6)),
        "transposed": lambda: dist.all_reduce(torch.ones(6, 4)),
        "max": lambda: dist.all_reduce(tensor, op=dist.ReduceOp.MAX),
        "broadcast": lambda: dist.broadcast(tensor, 0),
        "root": lambda: dist.broadcast(tensor, 1),
        "barrier": dist.barrier,
        "by gloo": lambda: dist.scatter(tensor, src=0),
        "reduce": lambda: dist.reduce(tensor, 0),
        "asynchronous": lambda: dist.all_reduce(tensor.double(), async_op=True).wait(),
    }
    calls[what]()


def differ(rank: int, ranks: int, what: str, other: str) -> None:
    """The last rank calls something else."""
    _call(other if rank == ranks - 1 else what)


def uneven(rank: int, ranks: int) -> None:
    """Rank 0 sends rank 1 more than rank 1 expects."""
    sends = [1, 2] if rank == 0 else [1, 1]
    dist.all_to_all_single(torch.empty(2), torch.ones(sum(sends)), [1, 1], sends)


def after_a_failure(rank: int, ranks: int) -> list[str]:
    """What a group says of a mismatch, and of the next call."""
    said = []
    for what in ("float32", "float32"):
        try:
            _call(what if rank else "max")
        except RuntimeError as error:
            said.append(f"{type(error).__name__}: {error}")
    dist.destroy_process_group()
    return said


def interrupted(rank: int, ranks: int) -> str:
    """Ctrl-C on rank 0 while it waits."""
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        while_it_waits(lambda: os.kill(os.getpid(), signal.SIGINT))
    else:
        wait_until_told("interrupted")
    try:
        dist.barrier()
    except (KeyboardInterrupt, RuntimeError) as error:
        reported("interrupted")
        return f"{type(error).__name__}: {error}"
    finally:
        dist.destroy_process_group()
    return "nothing"


def traces(rank: int, ranks: int) -> list[str]:
    """Names in /dev/shm while the group works."""
    dist.all_reduce(torch.ones(1000))
    return sorted(path.name for path in Path("/dev/shm").iterdir())


def memory(rank: int, ranks: int, groups: int) -> list[int]:
    """Bytes of the shared segments that this process maps, with more and more groups."""
    found = []
    for _ in range(groups):
        dist.new_group(list(range(ranks)))
        lines = [
            line
            for line in Path("/proc/self/maps").read_text().splitlines()
            if "memfd:accel_shm_segment" in line
        ]
        spans = [line.split()[0].split("-") for line in lines]
        found.append(sum(int(end, 16) - int(begin, 16) for begin, end in spans))
    return found


def lost_while_they_agree(rank: int, ranks: int) -> None:
    """One rank is killed when it is asked what the others have to know of it."""
    from accel_cpu.shm import rendezvous

    if rank == 1:
        rendezvous._facts = lambda segment: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, return-value]
    dist.new_group(backend="shm")
