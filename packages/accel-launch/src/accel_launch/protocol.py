# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a supervisor and the guard of a rank share: the assignment, messages, whole lines, and trees of processes.

The supervisor writes the assignment to the guard's standard input. The guard's messages are marked lines among the
rank's lines on standard error, the one channel that mpirun, srun and pdsh all bring back from every host.

A process that called `adopt_orphans` (Linux) becomes the parent of every descendant whose own parent ends, also of one
that has started a session of its own. So its descendants are all that it and its children started.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

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


@contextlib.contextmanager
def receiving(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None], selector: selectors.BaseSelector
) -> Iterator[None]:
    """Call the handler for these signals; each of them, and each child that ends, wakes the selector."""
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    former = {number: signal.signal(number, handler) for number in numbers}
    former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
    selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, function in former.items():
            signal.signal(number, function)
        os.close(reading)
        os.close(writing)


def has_ended(pipe: int) -> bool:
    """Whether the other end of a readable pipe is closed."""
    try:
        return not os.read(pipe, 4096)
    except OSError:
        return True


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


_CHUNK = 1 << 16
STDOUT, STDERR = 1, 2


class Lines:
    """Reads a pipe and passes on whole lines; an unfinished line when it is long, or at `flush`.

    take: receives a line with its end, or an unfinished one without.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self.descriptor, self._take, self._rest = descriptor, take, b""
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Pass on what has arrived, at most 64 KiB.

        Returns False at the end of the pipe, and if nobody takes the lines: the writer shall get the same error.
        """
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        try:
            self._split(data)
            if not data or len(self._rest) > _CHUNK:
                self._take_rest()
        except OSError:
            return False
        return bool(data)

    def drain(self) -> None:
        """Pass on everything that is in the pipe now, without waiting for more."""
        with contextlib.suppress(OSError):
            while data := os.read(self.descriptor, _CHUNK):
                self._split(data)
        self.flush()

    def flush(self) -> None:
        """Pass on an unfinished line: a prompt, a progress bar."""
        with contextlib.suppress(OSError):
            self._take_rest()

    def _take_rest(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest)

    def _split(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._take(line + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; raises OSError, usually BrokenPipeError, if nobody reads them any more."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # The other end may have been made non-blocking by whoever shares it.
            select.select([], [descriptor], [])


#: Followed by the job's random token, so that no program's output is taken for a message.
_MARK = b"\x1e"
#: A message is shorter than 1 KiB: mpirun, srun and pdsh may cut longer lines.
_TEXT = 300


def encode_message(token: str, kind: str, rank: int, **values: Any) -> bytes:
    """Return a message as a line."""
    data = json.dumps({"kind": kind, "rank": rank, **values}).encode()
    return _MARK + token.encode() + b" " + data + b"\n"


def encode_line(token: str, rank: int, line: bytes) -> bytes:
    """Return one of a failed rank's last lines as a message."""
    text = line.decode("utf-8", "replace")
    return encode_message(token, "line", rank, text=text if len(text) <= _TEXT else f"{text[:_TEXT]}…")


@dataclass(frozen=True)
class Message:
    """kind: `start`, `status`, `traceback`, `line` or `end`; the values depend on it."""

    kind: str
    rank: int
    values: Mapping[str, Any] = field(default_factory=dict)


def decode_message(token: str, line: bytes) -> tuple[bytes, Message | None]:
    """Return what a program wrote on this line, and the message in it, if there is one."""
    before, mark, after = line.partition(_MARK + token.encode() + b" ")
    if not mark:
        return line, None
    try:
        data = json.loads(after)
        message = Message(str(data.pop("kind")), int(data.pop("rank")), data)
    except (ValueError, KeyError, AttributeError, TypeError):
        return line, None
    return before, message


@dataclass(frozen=True)
class Assignment:
    """One rank on this host.

    command: argument list of the program. environment: variables to set. cpus, memory_mode, memory_nodes: as in
    `plan.Rank`. grace: seconds between SIGTERM and SIGKILL. token: marks the messages to the
    launcher. log: file for the output instead of the launcher's; empty: none. stdin: descriptor to use as the
    rank's standard input; -1: none. hosts_file: descriptor that an
    engine's command inherits; -1: none. status: whether to send the rank's CPU and memory use every second.
    """

    rank: int
    host: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    token: str
    grace: float
    cpus: tuple[int, ...] = ()
    memory_mode: str = "default"
    memory_nodes: tuple[int, ...] = ()
    log: str = ""
    stdin: int = -1
    hosts_file: int = -1
    status: bool = False

    def to_line(self) -> bytes:
        """Return the assignment as one line of JSON."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Assignment:
        """Return the assignment that `to_line` wrote."""
        data = json.loads(line)
        for name in ("command", "cpus", "memory_nodes"):
            data[name] = tuple(data[name])
        return cls(**data)


def report_failure(token: str, rank: int, text: str, code: int) -> int:
    """Tell the launcher that a rank could not be started, and why; returns the code."""
    lines = [encode_line(token, rank, line.encode()) for line in text.splitlines()]
    lines.append(encode_message(token, "end", rank, code=code, age=0.0, stopped=False))
    with contextlib.suppress(OSError):
        for line in lines:
            write_all(STDERR, line)
    return code
