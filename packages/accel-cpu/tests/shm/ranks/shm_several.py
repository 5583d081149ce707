# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What ranks do that believe to be on several hosts. The default group is gloo's; the group under test is beside it."""

import dataclasses
import os
import signal
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from accel_cpu.shm import rendezvous
from accel_cpu.shm.hosts import Hosts
from accel_cpu.shm.memory import SharedMemory

#: Where a rank can be lost: in its host, between the hosts, and in its host again.
PHASES: dict[str, tuple[type, str]] = {
    "within": (SharedMemory, "reduce"),
    "between": (Hosts, "_between"),
    "after": (SharedMemory, "broadcast"),
}


def group_on(rank: int, hosts: Sequence[int]) -> Any:
    """Make a group of all ranks; hosts: the host of each rank."""
    facts = rendezvous._facts
    rendezvous._facts = lambda segment: dataclasses.replace(facts(segment), host=f"host {hosts[rank]}")
    return dist.new_group(backend="shm")


def collectives(rank: int, ranks: int, hosts: Sequence[int]) -> tuple[str, list[str]]:
    """Return the group's reason, and the collectives that differ from gloo's, or between the ranks."""
    group, wrong = group_on(rank, hosts), []

    def check(name: str, call: Any, *shape: int, like: torch.Tensor) -> None:
        ours, theirs = (torch.zeros(shape, dtype=like.dtype) for _ in range(2))
        call(ours, group)
        call(theirs, None)
        if not torch.equal(ours, theirs):
            wrong.append(f"{name} of {like.dtype}")

    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        given = (2 ** ((torch.arange(6 * ranks) + rank) % 3)).to(dtype)  # exact, products too
        for op in ("SUM", "MIN", "MAX", "PRODUCT"):
            reduction = getattr(dist.ReduceOp, op)

            def all_reduce(out: Any, group: Any, given: Any = given, op: Any = reduction) -> None:
                dist.all_reduce(out.copy_(given), op, group)

            def scatter(out: Any, group: Any, given: Any = given, op: Any = reduction) -> None:
                dist.reduce_scatter_tensor(out, given, op, group)

            check(f"all_reduce {op}", all_reduce, 6 * ranks, like=given)
            check(f"reduce_scatter {op}", scatter, 6, like=given)
        for root in range(ranks):

            def broadcast(out: Any, group: Any, given: Any = given, root: int = root) -> None:
                dist.broadcast(out.copy_(given), root, group)

            check(f"broadcast {root}", broadcast, 6 * ranks, like=given)

        def gather(out: Any, group: Any, given: Any = given) -> None:
            dist.all_gather_into_tensor(out, given, group)

        def exchange(out: Any, group: Any, given: Any = given) -> None:
            dist.all_to_all_single(out, given, group=group)

        check("all_gather", gather, 6 * ranks * ranks, like=given)
        check("all_to_all", exchange, 6 * ranks, like=given)
    wrong += unusual(rank, ranks, group)
    dist.barrier(group)
    torch.manual_seed(rank)
    for dtype in (torch.float32, torch.bfloat16):
        mean = torch.randn(200_001).to(dtype).view(3, -1).t()
        exact = mean.double()
        dist.all_reduce(mean, dist.ReduceOp.AVG, group)
        dist.all_reduce(exact)
        everybodys = [torch.empty_like(mean) for _ in range(ranks)]
        dist.all_gather(everybodys, mean)
        if not all(torch.equal(each, mean) for each in everybodys):
            wrong.append(f"the bits of {dtype}")
        if not torch.allclose(mean.double(), exact / ranks, atol=1e-6 if dtype is torch.float32 else 0.05):
            wrong.append(f"the average of {dtype}")
    return group.reason, wrong


def unusual(rank: int, ranks: int, group: Any) -> list[str]:
    """Return what is wrong with unequal parts, sums that overflow, rare types, and shapes that differ by a 1."""
    wrong = []
    # Rank r sends r + 1 elements to each rank.
    sent, sizes = torch.full((ranks * (rank + 1),), float(rank)), [other + 1 for other in range(ranks)]
    received = torch.zeros(sum(sizes))
    dist.all_to_all_single(received, sent, sizes, [rank + 1] * ranks, group=group)
    if not torch.equal(received, torch.arange(float(ranks)).repeat_interleave(torch.tensor(sizes))):
        wrong.append("all_to_all of unequal parts")
    small = torch.full((3,), 30_000.0, dtype=torch.float16)  # their sum is beyond float16
    dist.all_reduce(small, dist.ReduceOp.AVG, group)
    if not torch.equal(small, torch.full_like(small, 30_000.0)):
        wrong.append(f"the average of {small}")
    words = [torch.zeros(2, dtype=torch.uint16) for _ in range(ranks)]
    dist.all_gather(words, torch.tensor([rank, 60_000], dtype=torch.uint16), group)
    if [word.tolist() for word in words] != [[other, 60_000] for other in range(ranks)]:
        wrong.append("all_gather of uint16")
    dist.all_reduce(
        torch.ones((1, 4) if rank else (4,)), group=group
    )  # a dimension of size 1 does not matter
    return wrong


def loses(rank: int, ranks: int, hosts: Sequence[int], victim: int, phase: str) -> str:
    """Return what a rank's all_reduce raises, of which `victim` is killed in a phase."""
    group = group_on(rank, hosts)
    dist.all_reduce(torch.ones(1000), group=group)
    if rank == victim:
        owner, name = PHASES[phase]
        setattr(owner, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    try:
        for _ in range(3):  # a host whose part is done notices it at its next call
            dist.all_reduce(torch.ones(1000), group=group)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        dist.destroy_process_group()  # nobody waits for the victim at the end of the job
    return ""


def differs(rank: int, ranks: int, hosts: Sequence[int], sizes: Sequence[int]) -> str:
    """Return what is raised where the ranks reduce tensors of different sizes."""
    group = group_on(rank, hosts)
    try:
        dist.all_reduce(torch.ones(sizes[rank]), group=group)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
