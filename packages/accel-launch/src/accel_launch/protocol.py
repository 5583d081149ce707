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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any


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


def signal_on_parent_end(number: int) -> None:
    """Ask the kernel for a signal when this process's parent ends (Linux; elsewhere nothing)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends (Linux; elsewhere nothing)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def process_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat from the third on, the state; empty without such a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the name in parentheses, which may itself have spaces and parentheses.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def descendants(root: int, zombies: bool = False) -> list[int]:
    """Return the processes below `root` from /proc, those that have ended only if `zombies`; empty without /proc."""
    children: dict[int, list[int]] = {}
    ended = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and (fields := process_fields(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
            if fields[0] == b"Z":
                ended.add(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return [pid for pid in found[1:] if zombies or pid not in ended]


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to processes, to a process group by a negative number; those that have ended are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


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


def shell_code(code: int) -> int:
    """Return the exit code of a shell for an exit code or a negative number of a signal."""
    return code if code >= 0 else 128 - code


class Lines:
    """Reads a pipe and passes on whole lines; an unfinished line when it is long, or at `flush`.

    take: receives a line with its end, or an unfinished one without.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self.descriptor, self._take, self._rest = descriptor, take, b""
        os.set_blocking(descriptor, False)

    def read(self) -> bool | None:
        """Pass on what has arrived, at most 64 KiB; None: nothing has.

        Returns False at the end of the pipe, and if nobody takes the lines: the writer shall get the same error.
        """
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return None
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
        while self.read():
            pass
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


class Loop:
    """Waits for lines, for the end of pipes, for signals and for children that end."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._streams: dict[int, Lines] = {}

    def read_lines(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        """Pass the lines of a pipe on to `take` from now on; closes the descriptor at its end."""
        stream = self._streams[descriptor] = Lines(descriptor, take)

        def read() -> None:
            if stream.read() is False:
                self.close(descriptor)

        self._selector.register(descriptor, selectors.EVENT_READ, read)

    def close(self, descriptor: int) -> None:
        """Read no more of a pipe, if it was still read."""
        if self._streams.pop(descriptor, None):
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def drain(self, descriptors: Iterable[int] | None = None) -> None:
        """Pass on everything that is in these pipes, by default in all."""
        for descriptor in [*self._streams] if descriptors is None else descriptors:
            if stream := self._streams.get(descriptor):
                stream.drain()

    def call_at_end(self, descriptor: int, call: Callable[[], None]) -> None:
        """Call a function when the other end of a pipe is closed."""

        def read() -> None:
            try:
                ended = not os.read(descriptor, 4096)
            except OSError:
                ended = True
            if ended:
                self._selector.unregister(descriptor)
                call()

        with contextlib.suppress(PermissionError):  # epoll's answer for a file, which has no end
            self._selector.register(descriptor, selectors.EVENT_READ, read)

    @contextlib.contextmanager
    def receiving(
        self, numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
    ) -> Iterator[None]:
        """Call the handler for these signals; each of them, and each child that ends, ends a `wait`."""
        reading, writing = os.pipe()
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        former = {number: signal.signal(number, handler) for number in numbers}
        former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, function in former.items():
                signal.signal(number, function)
            self._selector.close()
            os.close(reading)
            os.close(writing)

    def wait(self) -> None:
        """Handle what has happened, waiting for it at most 0.2 s."""
        ready = self._selector.select(_IDLE)
        for key, _ in ready:
            key.data()
        for stream in [] if ready else [*self._streams.values()]:
            stream.flush()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; raises OSError, usually BrokenPipeError, if nobody reads them any more."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # The other end may have been made non-blocking by whoever shares it.
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
    """What one guard has to run on this host: a rank, or with the rank -1 an engine's command.

    command: argument list of the program. environment: variables to set. cpus, memory_mode, memory_nodes: as in
    `plan.Rank`. grace: seconds between SIGTERM and SIGKILL. token: marks the messages to the launcher. log: file for
    the output instead of the launcher's; empty: none. stdin: descriptor to use as the rank's standard input; -1: none.
    status: whether to send the rank's CPU and memory use every second.
    """

    rank: int
    host: str
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

    def to_line(self) -> bytes:
        """Return the assignment as one line of JSON, its fields by name."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"
