# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, each a process, and what they report."""

import multiprocessing
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

#: Guard against hangs.
LIMIT = 240.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "accel_cpu.shm.process_group"])


@dataclass(frozen=True)
class Report:
    """What a rank's function returned or raised, and how long it took in seconds. `lost`: it ended without either."""

    value: Any = None
    error: str = ""
    seconds: float = 0.0
    lost: bool = False


def run(
    function: Callable[..., Any], ranks: int, *arguments: Any, timeout: float = 60.0, backend: str = "shm",
    limit: float = LIMIT,
) -> list[Report]:  # fmt: skip
    """Run `function(rank, ranks, *arguments)` on the ranks of one process group.

    timeout: that of the group, in seconds; limit: the guard against hangs.
    """
    with tempfile.TemporaryDirectory() as folder:
        ends, children = [], []
        group = {
            "init_method": f"file://{folder}/store",
            "timeout": timedelta(seconds=timeout),
            "world_size": ranks,
        }
        for rank in range(ranks):
            mine, theirs = _CONTEXT.Pipe()
            job = (theirs, function, arguments, backend, {**group, "rank": rank})
            child = _CONTEXT.Process(target=_rank, args=job, daemon=True)
            child.start()
            theirs.close()
            ends.append(mine)
            children.append(child)
        try:
            return _reports(ends, limit)
        finally:
            for child in children:
                child.join(5)
                child.kill()
                child.join()


def values(*job: Any, **options: Any) -> list[Any]:
    """What the ranks of `run(*job, **options)` returned; each has to."""
    reports = run(*job, **options)
    for report in reports:
        assert not report.error, report.error
        assert not report.lost
    return [report.value for report in reports]


def reported(what: str) -> None:
    """Report to the other ranks of the job; see `wait_until_reported`."""
    default_store().set(what, "yes")


def wait_until_reported(what: str) -> None:
    """Wait until a rank of the job has called `reported` with the same text."""
    default_store().wait([what], timedelta(seconds=LIMIT))


def default_store() -> Any:
    """The store of the job's ranks."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def while_it_waits(call: Callable[[], object]) -> None:
    """Call something on another thread, once the main thread sleeps in a collective because a rank has not come."""
    from accel_cpu.shm.memory import SharedMemory

    waiting = {SharedMemory._run.__code__, SharedMemory.reduced_at_once.__code__}
    main = threading.main_thread().ident or 0
    state = Path(f"/proc/self/task/{os.getpid()}/stat")  # the main thread's, whose number is the process's

    def watch() -> None:
        seen = 0
        while seen < 10:  # once, it might sleep for another reason
            time.sleep(0.02)
            inside = sys._current_frames()[main].f_code in waiting
            seen = seen + 1 if inside and ") S " in state.read_text() else 0
        call()

    threading.Thread(target=watch, daemon=True).start()


def _reports(ends: list[Connection], limit: float) -> list[Report]:
    found: dict[Any, Report] = {}
    until = time.monotonic() + limit
    while len(found) < len(ends) and time.monotonic() < until:
        for end in wait([end for end in ends if end not in found], 1.0):
            assert isinstance(end, Connection)
            try:
                found[end] = end.recv()
            except EOFError:
                found[end] = Report(lost=True)
    return [found.get(end, Report(error="still running", lost=True)) for end in ends]


def _rank(
    end: Connection, function: Any, arguments: tuple[Any, ...], backend: str, group: dict[str, Any]
) -> None:
    import torch
    import torch.distributed as dist

    from accel_cpu import register_backend

    os.environ.pop("MASTER_ADDR", None)
    torch.set_num_threads(1)
    register_backend()
    started = time.monotonic()
    try:
        dist.init_process_group(backend, **group)
        started = time.monotonic()
        value = function(group["rank"], group["world_size"], *arguments)
        report = Report(value, seconds=time.monotonic() - started)
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-2)}"
        report = Report(error=text, seconds=time.monotonic() - started)
    end.send(report)
    end.close()
    os._exit(0)
