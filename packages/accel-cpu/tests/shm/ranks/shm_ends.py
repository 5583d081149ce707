# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that leave, abort, fork, or call a group from signal handlers and from several threads."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from shm_jobs import default_store, reported, wait_until_told, while_it_waits


def _said(call: Callable[[], Any]) -> str:
    """Return what a call raises, without the advice; empty if nothing."""
    try:
        call()
    except (RuntimeError, SystemExit) as error:
        return f"{type(error).__name__}: {error}".partition("expected:")[0]
    return ""


def _segments() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:accel_shm_segment")


def left(rank: int, ranks: int) -> list[str]:
    """Rank 1 destroys a group in which rank 0 still calls something, twice."""
    group = dist.new_group()
    if rank == 1:
        dist.destroy_process_group(group)
        time.sleep(1)
        return []
    return [_said(lambda: dist.all_reduce(torch.ones(1), group=group)) for _ in range(2)]


def left_early(rank: int, ranks: int, count: int) -> float:
    """Ranks leave a group as soon as their own last call is done."""
    tensor = torch.ones(1)
    for _ in range(count):
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
        wait_until_told("aborted")
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
    signal.signal(signal.SIGTERM, handle)
    if rank == 0:
        while_it_waits(lambda: os.kill(os.getpid(), signal.SIGTERM))
    else:
        wait_until_told("handled")
    return _said(lambda: dist.all_reduce(torch.ones(3)))


def handler_calls(rank: int, ranks: int) -> list[str]:
    """A signal handler calls a collective while the rank waits in another one."""
    within: list[str] = []
    outer = _on_signal(rank, lambda *_: within.append(_said(lambda: dist.all_reduce(torch.ones(4)))))
    return [outer, *within, _said(dist.barrier)]


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
