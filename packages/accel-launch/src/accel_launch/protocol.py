# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Protocol of a supervisor and a guard: assignments, messages, whole lines, and trees of processes.

The supervisor writes the assignments to the guard's standard input. The guard's messages are marked lines among the
rank's lines on standard error. It is the one channel that mpirun, srun and pdsh all bring back from every host.

A process that called `adopt_orphans` (Linux) becomes the parent of every descendant whose own parent ends, also of one
that has started its own session. So its descendants are all that it and its children started.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import psutil


def call_main(module: str, python: str = sys.executable) -> tuple[str, ...]:
    """Return the command that calls `main()` of a module; `python`: the interpreter."""
    path = "import sys; sys.path = [p for p in sys.path if p]"  # without the working folder
    return (python, "-c", f"{path}; from {module} import main; sys.exit(main())")


#: Command of a guard; see `guard`.
GUARD = call_main("accel_launch.guard")
#: Passed on to the ranks, which then have the grace period to end.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
#: Passed on to the ranks, which decide what it means.
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
STDOUT, STDERR = 1, 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAUSE, _IDLE = 0.02, 0.2
_CHUNK = 1 << 16
# Loaded at import: between fork and exec a child must not load libraries.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def signal_on_parent_end(number: int, parent: int) -> None:
    """Ask the kernel for a signal when this process's parent ends, and end if it has (Linux; elsewhere nothing)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends (Linux; elsewhere nothing)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> set[int]:
    """Return the processes below this one."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to processes, to a process group by a negative number; those that have ended are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_processes(grace: float, find: Callable[[], set[int]]) -> None:
    """End what `find` returns: SIGTERM, after `grace` seconds SIGKILL, until it returns nothing."""
    end = time.monotonic() + grace
    asked: set[int] = set()
    while left := find():
        if time.monotonic() >= end:
            send(signal.SIGKILL, left)
        else:
            send(signal.SIGTERM, left - asked)
            asked |= left
        time.sleep(_PAUSE)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def shell_code(code: int) -> int:
    """Return the exit code of a shell for an exit code or a negative number of a signal."""
    return code if code >= 0 else 128 - code


class Loop:
    """Waits for lines, for the ends of pipes, for signals and for children that end."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        #: What takes the lines of a pipe, and the unfinished line.
        self._streams: dict[int, tuple[Callable[[bytes], None], bytes]] = {}

    def read_lines(
        self, descriptor: int, take: Callable[[bytes], None], at_end: Callable[[], None] = lambda: None
    ) -> None:
        """Pass the lines of a pipe on to `take`; an unfinished one if it is long, or if nothing follows."""

        def read() -> None:
            self._read(descriptor)
            if descriptor not in self._streams:
                at_end()

        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, read)
        self._streams[descriptor] = take, b""

    def _read(self, descriptor: int) -> bool:
        """Pass on at most 64 KiB; returns False if nothing has arrived. Close the pipe at its end.

        Close it also if `take` raises OSError: the writer gets the same error.
        """
        take, rest = self._streams[descriptor]
        try:
            data = os.read(descriptor, _CHUNK)
            *whole, rest = (rest + data).split(b"\n")
            self._streams[descriptor] = take, rest
            for line in whole:
                take(line + b"\n")
            if not data or len(rest) > _CHUNK:
                self._flush(descriptor)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(descriptor)
            del self._streams[descriptor]
            os.close(descriptor)
        return bool(data)

    def _flush(self, descriptor: int) -> None:
        """Pass on an unfinished line: a prompt, a progress bar."""
        take, rest = self._streams[descriptor]
        self._streams[descriptor] = take, b""
        if rest:
            take(rest)

    def drain(self, descriptors: Iterable[int]) -> None:
        """Pass on everything that is in these pipes, without waiting for more."""
        for descriptor in descriptors:
            while descriptor in self._streams and self._read(descriptor):
                pass
            if descriptor in self._streams:
                with contextlib.suppress(OSError):
                    self._flush(descriptor)

    def receive(self, numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> None:
        """Call the handler for these signals; each of them, and each child that ends, ends a `wait`."""
        reading, writing = os.pipe()
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, handler)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))

    def wait(self) -> None:
        """Handle what has happened, waiting for it at most 0.2 s."""
        ready = self._selector.select(_IDLE)
        for key, _ in ready:
            key.data()
        for descriptor in [] if ready else [*self._streams]:
            with contextlib.suppress(OSError):
                self._flush(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; raises OSError, usually BrokenPipeError, if nobody reads them any more."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # The other end may have been made non-blocking by a process that shares it.
            select.select([], [descriptor], [])


def say(text: str) -> None:
    """Write a line for the user on standard error, if somebody reads it."""
    with contextlib.suppress(OSError):
        write_all(STDERR, f"accel launch: {text}\n".encode())


#: Followed by the job's random token, so that no program's output is taken for a message.
_MARK = b"\x1e"
#: A message is shorter than 1 KiB: mpirun, srun and pdsh may cut longer lines.
_TEXT = 300


@dataclass(frozen=True)
class Message:
    """kind: `start`, `status`, `traceback`, `line` or `end`; the values depend on it."""

    kind: str
    rank: int
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_line(cls, rank: int, line: bytes) -> Message:
        """Return the message with one of a failed rank's last lines."""
        text = line.decode("utf-8", "replace")
        return cls("line", rank, {"text": text if len(text) <= _TEXT else f"{text[:_TEXT]}…"})

    def encode(self, token: str) -> bytes:
        """Return the message as a line."""
        data = json.dumps({"kind": self.kind, "rank": self.rank, **self.values})
        return _MARK + f"{token} {data}\n".encode()

    @classmethod
    def decode(cls, token: str, line: bytes) -> tuple[bytes, Message | None]:
        """Return what a program wrote on this line, and the message in it, if there is one."""
        before, mark, after = line.partition(_MARK + token.encode() + b" ")
        if not mark:
            return line, None
        try:
            data = json.loads(after)
            return before, cls(str(data.pop("kind")), int(data.pop("rank")), data)
        except (ValueError, KeyError, AttributeError, TypeError):
            return line, None


def report_failure(token: str, rank: int, text: str, code: int) -> int:
    """Tell the launcher that a rank could not be started, and why; returns the code."""
    lines = [Message.of_line(rank, line.encode()) for line in text.splitlines()]
    end = Message("end", rank, {"code": code, "age": 0.0, "stopped": False})
    with contextlib.suppress(OSError):
        for message in (*lines, end):
            write_all(STDERR, message.encode(token))
    return code


@dataclass(frozen=True)
class Assignment:
    """A rank that a guard has to run on this host.

    command: argument list of the program. environment: variables to set. cpus, memory_mode, memory_nodes: as in
    `plan.Rank`. grace: seconds between SIGTERM and SIGKILL. token: marks the messages to the launcher. log: file for
    the output instead of the launcher's; empty: none. stdin: descriptor to use as the rank's standard input; -1: none.
    status: whether to send the rank's CPU and memory use every second.
    """

    rank: int
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    token: str
    grace: float
    cpus: Sequence[int] = ()
    memory_mode: str = "default"
    memory_nodes: Sequence[int] = ()
    log: str = ""
    stdin: int = -1
    status: bool = False
