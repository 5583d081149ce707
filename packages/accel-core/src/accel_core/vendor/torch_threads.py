# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Let torch's own threads finish before the interpreter ends.

A thread of gloo, or of a device's autograd, drops its last task after it has reported the task as done.
The task holds tensors, and dropping a tensor's Python object needs the interpreter. If the interpreter ends at that
moment, Python ends the thread; C++ does not allow that in a destructor, and the process aborts: "terminate called
without an active exception", exit code -6, although all work was done. On a busy machine it happened once in 30 runs
of two ranks, with and without `destroy_process_group()` (DeepSpeed's engine keeps the group).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from pathlib import Path

#: The names that torch gives these threads; the kernel keeps 15 characters.
_NAMES = ("pt_gloo_runloop", "pt_autograd_")
_TASKS = Path("/proc/self/task")

#: Seconds that a thread may still run: it only has to get a CPU. One that waits for another rank is not waited for.
_LIMIT = 2.0
_INTERVAL = 0.001
#: Seconds to wait where the threads cannot be seen, which is everywhere but on Linux.
_BLIND = 0.05

_registered = threading.Event()


def finish_at_exit() -> None:
    """Wait for torch's threads when the interpreter ends: after handlers that are registered later. Idempotent."""
    if not _registered.is_set():
        _registered.set()
        atexit.register(wait_until_idle)


def wait_until_idle(limit: float = _LIMIT) -> bool:
    """Wait until no thread of torch is at work; return False if one still is after `limit` seconds.

    A thread that sleeps, and has slept since the last look, has nothing to drop: the interpreter was free since then.
    """
    if not _TASKS.is_dir():
        time.sleep(min(_BLIND, limit))
        return True
    ends = time.monotonic() + limit
    before = _at_work()
    while before:
        if time.monotonic() > ends:
            return False
        time.sleep(_INTERVAL)  # without the interpreter, which they may need
        now = _at_work()
        before = {
            thread: seen for thread, seen in now.items() if not _sleeps(seen) or before.get(thread) != seen
        }
    return True


def _at_work() -> dict[str, str]:
    """Return {thread: its state and counts of switches} of each thread of torch."""
    seen = {}
    for task in os.listdir(_TASKS):
        try:
            if (_TASKS / task / "comm").read_text().startswith(_NAMES):
                seen[task] = (_TASKS / task / "status").read_text()
        except OSError:  # it has ended
            continue
    return {
        task: "".join(line for line in status.splitlines() if line.startswith(("State", "vol", "nonvol")))
        for task, status in seen.items()
    }


def _sleeps(seen: str) -> bool:
    return "State:\tS" in seen
