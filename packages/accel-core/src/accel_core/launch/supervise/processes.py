# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trees of processes: who is in them, how they end. Linux only where it says so.

A process that called `adopt_orphans` becomes the parent of every descendant whose own parent ends, also of one
that has started a session of its own. So its descendants are all that it and its children ever started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: Passed on to the ranks, which then have the grace period to end.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
#: Passed on to the ranks, which decide what it means.
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
_PAUSE = 0.02
_LINUX = sys.platform.startswith("linux")
# Loaded at import: between fork and exec a child must not load libraries.
_libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None


def signal_on_parent_end(number: int) -> None:
    """Ask the kernel for a signal when this process's parent ends (Linux; elsewhere nothing)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends (Linux; elsewhere nothing)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int, zombies: bool = False) -> list[int]:
    """Return the processes below `root` from /proc, those that have ended only if `zombies`; empty without /proc."""
    children: dict[int, list[int]] = {}
    ended = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        state, parent = _state(int(name))
        children.setdefault(parent, []).append(int(name))
        if state == "Z":
            ended.add(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found if zombies else [pid for pid in found if pid not in ended]


def _state(pid: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the name in parentheses, which may itself have spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "", -1
    return fields[0].decode(), int(fields[1])


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to processes; those that have ended are passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def send_group(number: int, group: int) -> None:
    """Send a signal to a process group, unless all of it has ended."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def end_descendants(grace: float, keep: Collection[int] = ()) -> None:
    """End everything below this process, except `keep`: SIGTERM, after `grace` seconds SIGKILL, until all has ended."""
    end = time.monotonic() + grace
    asked: set[int] = set()
    while left := set(descendants(os.getpid())).difference(keep):
        if time.monotonic() >= end:
            send(signal.SIGKILL, left)
        else:
            send(signal.SIGTERM, left - asked)
            asked |= left
        time.sleep(_PAUSE)
    for pid in set(descendants(os.getpid(), zombies=True)).difference(keep):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
