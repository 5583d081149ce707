# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stop, leave, abort, fork or call something else; what the others raise."""

import dataclasses
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import shm_random
import torch
import torch.distributed as dist
from shm_jobs import default_store, reported, wait_until_reported, while_it_waits

from accel_cpu.shm import rendezvous
from accel_cpu.shm.hosts import Hosts
from accel_cpu.shm.memory import SharedMemory


def _said(call: Callable[[], Any]) -> str:
    """Return what a call raises, without the advice; empty if nothing."""
    try:
        call()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return f"{type(error).__name__}: {getattr(error, 'message', error)}"
    return ""


def of_another_length(rank: int, ranks: int) -> list[str]:
    """Return what is raised for lists that have no tensor for some rank, or one too many."""
    calls = (
        lambda: dist.reduce_scatter(torch.empty(3), [torch.ones(3)] * (ranks - 1)),
        lambda: dist.all_gather([torch.empty(3) for _ in range(ranks + 1)], torch.ones(3)),
    )
    return [_said(call).partition(":")[0] for call in calls]


def killed(rank: int, ranks: int, victim: int, size: int, after: float) -> None:
    """One rank is killed after some seconds, in one of two collectives."""
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
        wait_until_reported("gave up")
        return
    try:
        dist.barrier(group=group)
    finally:
        reported("gave up")


_ONES = torch.ones(4, 6)
CALLS: dict[str, Callable[[], Any]] = {
    "float32": lambda: dist.all_reduce(_ONES.clone()),
    "bfloat16": lambda: dist.all_reduce(_ONES.bfloat16()),
    "complex64": lambda: dist.all_reduce(_ONES.to(torch.complex64)),
    "larger": lambda: dist.all_reduce(torch.ones(5, 6)),
    "transposed": lambda: dist.all_reduce(torch.ones(6, 4)),
    "max": lambda: dist.all_reduce(_ONES.clone(), op=dist.ReduceOp.MAX),
    "broadcast": lambda: dist.broadcast(_ONES, 0),
    "root": lambda: dist.broadcast(_ONES, 1),
    "barrier": lambda: dist.barrier(),
    "by gloo": lambda: dist.scatter(_ONES.clone(), src=0),
    "scatter": lambda: dist.scatter(_ONES.clone(), src=2),
    "uneven list": lambda: dist.scatter(_ONES.clone(), [_ONES, torch.ones(5, 6), _ONES], src=2),
    "reduce": lambda: dist.reduce(_ONES.clone(), 0),
    "asynchronous": lambda: dist.all_reduce(_ONES.double(), async_op=True).wait(),
}


def differ(rank: int, ranks: int, what: str, other: str) -> None:
    """The last rank calls something else."""
    CALLS[other if rank == ranks - 1 else what]()


def uneven(rank: int, ranks: int, hosts: Sequence[int] = ()) -> str:
    """Return what is raised where rank 0 sends rank 1 more than rank 1 expects."""
    group = group_on(rank, hosts) if hosts else dist.new_group()
    sends = [2 if (rank, other) == (0, 1) else 1 for other in range(ranks)]
    parts = [1] * ranks
    return _said(
        lambda: dist.all_to_all_single(torch.empty(ranks), torch.ones(sum(sends)), parts, sends, group=group)
    )


def after_a_failure(rank: int, ranks: int) -> list[str]:
    """What a group says of a mismatch, and of the next call."""
    said = [_said(CALLS["float32" if rank else "max"]) for _ in range(2)]
    dist.destroy_process_group()
    return said


def traces(rank: int, ranks: int) -> list[str]:
    """Names in /dev/shm while the group works."""
    dist.all_reduce(torch.ones(1000))
    return sorted(path.name for path in Path("/dev/shm").iterdir())


def memory(rank: int, ranks: int, groups: int) -> list[int]:
    """Bytes of the shared segments that this process maps, with more and more groups."""
    found = []
    for _ in range(groups):
        dist.new_group(list(range(ranks)))
        lines = Path("/proc/self/maps").read_text().splitlines()
        spans = [line.split()[0].split("-") for line in lines if "memfd:accel_shm_segment" in line]
        found.append(sum(int(end, 16) - int(begin, 16) for begin, end in spans))
    return found


def lost_while_they_agree(rank: int, ranks: int) -> None:
    """One rank is killed when it is asked what the others have to know of it."""
    if rank == 1:
        rendezvous._facts = lambda segment: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, return-value]
    dist.new_group(backend="shm")


def _segments() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:accel_shm_segment")


def left_early(rank: int, ranks: int) -> float:
    """Ranks leave a group as soon as their own last call is done."""
    tensor = torch.ones(1)
    for _ in range(10):
        group = dist.new_group()
        tensor = torch.ones(400_000)
        dist.all_reduce(tensor, group=group)
        dist.destroy_process_group(group)
    return tensor[-1].item()


def destroyed_while_pending(rank: int, ranks: int) -> str:
    """Rank 0 destroys a group whose asynchronous call cannot be done."""
    group = dist.new_group()
    if rank == 1:
        dist.destroy_process_group(group)
        time.sleep(1)
        return ""
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    dist.destroy_process_group(group)
    return _said(work.wait)


def aborted(rank: int, ranks: int) -> list[Any]:
    """A thread of rank 0 aborts a group while the rank waits in it."""
    before = _segments()
    group: Any = dist.new_group()

    def abort() -> None:
        group.abort()
        reported("aborted")

    if rank == 0:
        while_it_waits(abort)
    else:
        wait_until_reported("aborted")
    said = _said(lambda: dist.all_reduce(torch.ones(1), group=group))
    until = time.monotonic() + 60
    while rank == 0 and _segments() > before and time.monotonic() < until:
        time.sleep(0.05)
    return [said, _segments() - before]


def from_two_threads(rank: int, ranks: int) -> list[float]:
    """Two threads call the same group at the same time."""
    sums: list[float] = []

    def work() -> None:
        for _ in range(200):
            tensor = torch.full((1000,), float(rank))
            dist.all_reduce(tensor)
            sums.append(tensor[-1].item())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [float(len(sums)), *sorted(set(sums))]


def _on_signal(rank: int, handler: Callable[..., None]) -> str:
    """Return what an all_reduce raises on rank 0, whose handler is called while it waits, and on the others."""

    def handle(*given: object) -> None:
        try:
            handler(*given)
        finally:
            store.set("handled", "yes")

    store = default_store()  # a handler may destroy the group
    signal.signal(signal.SIGINT, handle)
    if rank == 0:
        while_it_waits(lambda: os.kill(os.getpid(), signal.SIGINT))
    else:
        wait_until_reported("handled")
    return _said(lambda: dist.all_reduce(torch.ones(3)))


def handler_calls(rank: int, ranks: int) -> list[str]:
    """A signal handler calls a collective while the rank waits in another one."""
    within: list[str] = []
    outer = _on_signal(rank, lambda *_: within.append(_said(lambda: dist.all_reduce(torch.ones(4)))))
    return [outer, *within, _said(dist.barrier)]


def interrupted(rank: int, ranks: int) -> str:
    """Ctrl-C on rank 0 while it waits."""
    said = _on_signal(rank, signal.default_int_handler)
    dist.destroy_process_group()
    return said


def handler_destroys(rank: int, ranks: int) -> str:
    """A signal handler destroys the group in which the rank waits, and ends the program."""

    def handler(*_: object) -> None:
        dist.destroy_process_group()
        raise SystemExit("by the handler")

    said = _on_signal(rank, handler)
    if dist.is_initialized():
        dist.destroy_process_group()
    return said


def forked(rank: int, ranks: int) -> list[str]:
    """What a child raises that was forked while its parent's thread waits in an asynchronous call."""
    tensor = torch.ones(3)
    work = None if rank else dist.all_reduce(tensor, async_op=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # guard against a hang
        later = _said(lambda: dist.all_reduce(torch.ones(1), async_op=True).wait())
        now = _said(lambda: dist.all_reduce(torch.ones(1)))
        os.write(writing, f"{later}\t{now}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    text = os.read(reading, 10_000).decode()
    work = work or dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert tensor.tolist() == [2.0] * 3
    return text.split("\t")


#: Where a rank can be lost: in its host, between the hosts, and in its host again.
PHASES: dict[str, tuple[type, str]] = {
    "within": (SharedMemory, "reduce"),
    "between": (Hosts, "_between"),
    "after": (SharedMemory, "broadcast"),
}


def group_on(rank: int, hosts: Sequence[int]) -> Any:
    """Make a group of all ranks, in addition to the default group, which is gloo's; hosts: the host of each rank."""
    facts = rendezvous._facts
    rendezvous._facts = lambda segment: dataclasses.replace(facts(segment), host=f"host {hosts[rank]}")
    return dist.new_group(backend="shm")


def collectives(rank: int, ranks: int, hosts: Sequence[int]) -> tuple[str, list[str], Counter[str]]:
    """Return the group's reason, what is wrong in it, and which random calls were right."""
    group = group_on(rank, hosts)
    wrong = unusual(rank, ranks, group)
    torch.manual_seed(rank)
    for dtype in (torch.float32, torch.bfloat16):
        mean = torch.randn(200_001).to(dtype).view(3, -1).t()
        dist.all_reduce(mean, dist.ReduceOp.AVG, group)
        everybodys = [torch.empty_like(mean) for _ in range(ranks)]
        dist.all_gather(everybodys, mean)
        if not all(torch.equal(each, mean) for each in everybodys):
            wrong.append(f"the bits of {dtype}")
    shm_random.HOSTS = len(set(hosts))
    return group.reason, wrong, shm_random.calls(rank, ranks, seed=ranks, count=120, largest=20_000)


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
    # A host whose part is done notices it at its next call.
    said = _said(lambda: [dist.all_reduce(torch.ones(1000), group=group) for _ in range(3)])
    dist.destroy_process_group()  # nobody waits for the victim at the end of the job
    return said


def differs(rank: int, ranks: int, hosts: Sequence[int], sizes: Sequence[int]) -> str:
    """Return what is raised where the ranks reduce tensors of different sizes."""
    group = group_on(rank, hosts)
    return _said(lambda: dist.all_reduce(torch.ones(sizes[rank]), group=group))
