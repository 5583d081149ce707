# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Runs guards to their end: passes on their output and the launcher's signals, and stops all when one rank fails.

A guard runs a rank of this host, or an engine's command (mpirun, srun, pdsh) whose ranks have guards of their own.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import selectors
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

from accel_launch.protocol import (
    PASSED_ON,
    STDERR,
    STDOUT,
    STOPPING,
    Assignment,
    Lines,
    Message,
    adopt_orphans,
    decode_message,
    descendants,
    encode_message,
    end_descendants,
    has_ended,
    receiving,
    write_all,
)


class View:
    """Where the output and the messages of the ranks go: here lines are written as they come."""

    def line(self, target: int, line: bytes) -> None:
        """Show a line of output; target: `STDOUT` or `STDERR`. Raises OSError if nobody reads it."""
        write_all(target, line)

    def message(self, message: Message) -> None:
        """Note what a guard said."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Relay(View):
    """Passes messages on to the launcher on another host."""

    def __init__(self, token: str) -> None:
        self._token = token

    def message(self, message: Message) -> None:
        """Write the message again."""
        write_all(STDERR, encode_message(self._token, message.kind, message.rank, **message.values))


_GUESSES = {
    "SIGKILL": "out of memory?",
    "SIGBUS": "/dev/shm full?",
    "SIGILL": "an instruction that this CPU does not have?",
    "SIGSEGV": "invalid memory access",
}
#: Seconds that a rank with a traceback has to end before a rank that failed after it counts as the first.
_SLOW_END = 3.0
#: Seconds in which the failures of several ranks are collected before the others are stopped.
SETTLE = 0.3


@dataclass
class Ends:
    """What the guards of the ranks have said so far. Times are those of `time.monotonic()` here.

    hosts: name of the host of each rank.
    """

    hosts: Mapping[int, str]
    ended: dict[int, int] = field(default_factory=dict)
    failures: dict[int, float] = field(default_factory=dict)
    tracebacks: dict[int, float] = field(default_factory=dict)
    lines: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))

    def take(self, message: Message, now: float) -> None:
        """Note a message of a guard."""
        rank, values = message.rank, message.values
        if message.kind == "traceback":
            self.tracebacks[rank] = now
        elif message.kind == "line":
            self.lines[rank].append(str(values.get("text", "")))
        elif message.kind == "end":
            code = int(values.get("code", 1))
            self.ended[rank] = code
            if code and not values.get("stopped"):
                self.failures[rank] = now - float(values.get("age", 0.0))

    def lost(self, rank: int, code: int, now: float, stopped: bool) -> None:
        """Note that the guard of a rank has ended; without a word, if it was killed, and the rank with it."""
        if rank not in self.ended:
            self.ended[rank] = code or 1
            if not stopped:
                self.failures[rank] = now

    def settled(self, now: float) -> bool:
        """Whether a rank has failed and it is clear which one was the first."""
        if not self.failures:
            return False
        first = min(self.failures.values())
        if now < first + SETTLE:
            return False
        suspects = (
            at
            for rank, at in self.tracebacks.items()
            if rank not in self.ended and first - _SLOW_END < at < first
        )
        return now > first + _SLOW_END or not any(suspects)

    def first(self) -> int | None:
        """Return the rank that failed first."""
        return min(self.failures, key=lambda rank: self.failures[rank]) if self.failures else None

    def exit_code(self, stopped_by: int | None) -> int:
        """Return the launcher's: that of the first failure, 128 + the number of the signal that stopped it, or 0.

        stopped_by: the signal that the launcher received.
        """
        first = self.first()
        if first is not None:
            return shell_code(self.ended[first])
        own = [code for _, code in sorted(self.ended.items()) if code > 0]
        if stopped_by is not None:
            return own[0] if own else 128 + stopped_by
        return next((shell_code(code) for code in self.ended.values() if code), 0)

    def report(self) -> str:
        """Return which rank failed first, how, and its last lines; empty if none failed."""
        first = self.first()
        if first is None:
            return ""
        text = f"{self._name(first)} {described(self.ended[first])}"
        if last := self.lines.get(first):
            text += "; its last lines:\n" + "\n".join(f"    {line}" for line in last)
        later = sorted(set(self.failures) - {first}, key=lambda rank: self.failures[rank])
        if later:
            shown = "; ".join(f"{self._name(rank)} {described(self.ended[rank])}" for rank in later[:4])
            more = f" and {len(later) - 4} more" if len(later) > 4 else ""
            text += f"\n  failed after it: {shown}{more}"
        return text

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self.hosts.get(rank, 'an unknown host')}"


def shell_code(code: int) -> int:
    """Return the exit code of a shell for an exit code or a negative number of a signal."""
    return code if code >= 0 else 128 - code


def described(code: int) -> str:
    """Return how a process ended, in words; `code` is negative for a signal."""
    if code < 0:
        name = _signal_name(-code)
        guess = f" ({_GUESSES[name]})" if name in _GUESSES else ""
        return f"was killed by {name}{guess}"
    if code > 128 and (name := _signal_name(code - 128)).startswith("SIG"):
        return f"ended with exit code {code} (128 + {name})"
    return f"ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class GuardProcess:
    """Starts a guard. take: receives its lines, with `STDOUT` or `STDERR`."""

    def __init__(
        self,
        command: Sequence[str],
        assignment: Assignment,
        environment: Mapping[str, str],
        take: Callable[[Assignment, int, bytes], None],
    ) -> None:
        self.assignment = assignment
        parent_pipe, self._parent_pipe = os.pipe()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=parent_pipe,
            stdout=out_end,
            stderr=err_end,
            pass_fds=tuple(number for number in (assignment.stdin, assignment.hosts_file) if number >= 0),
            # Ctrl-C in the terminal reaches the launcher only, which passes it on.
            start_new_session=True,
        )
        for descriptor in (parent_pipe, out_end, err_end):
            os.close(descriptor)
        self.streams = [
            Lines(out, lambda line: take(assignment, STDOUT, line)),
            Lines(err, lambda line: take(assignment, STDERR, line)),
        ]
        with contextlib.suppress(OSError):  # it has ended already
            write_all(self._parent_pipe, assignment.to_line())

    def exit_code(self) -> int | None:
        """Return how it ended, negative for a signal; None while it runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def close(self, stream: Lines) -> None:
        """Read no more of a stream."""
        self.streams.remove(stream)
        os.close(stream.descriptor)

    def cut(self) -> None:
        """End its parent pipe: it then ends its rank within few seconds."""
        if self._parent_pipe >= 0:
            os.close(self._parent_pipe)
            self._parent_pipe = -1


_IDLE = 0.2
#: Seconds beyond the grace period after which a guard that has not ended is killed.
_SLACK = 4.0
_NEVER = float("inf")
LostHost = Callable[[bytes], "tuple[str, int] | None"]


class Supervisor:
    """Runs the guards of `assignments`; one with a negative rank runs an engine's command.

    guard: command of a guard. environment: that of the guards. hosts: name of the host of each rank. parent_pipe: a
    descriptor at whose end everything is stopped; -1: none. lost_host: host and exit code, if an engine's line on
    standard error says that a host has ended.
    """

    def __init__(
        self,
        guard: Sequence[str],
        assignments: Sequence[Assignment],
        environment: Mapping[str, str],
        hosts: Mapping[int, str],
        view: View,
        parent_pipe: int = -1,
        lost_host: LostHost | None = None,
    ) -> None:
        self._guard, self.assignments, self._environment = guard, assignments, environment
        self._view, self._parent_pipe, self._lost_host = view, parent_pipe, lost_host
        self.hosts = hosts
        self.ends = Ends(hosts)
        #: Called with the signal by which this process is asked to stop while no guard is running.
        self.on_stop: Callable[[int], None] | None = None
        #: Exit code of an engine's command, negative for a signal; None: none has ended.
        self.engine_code: int | None = None
        #: The first error in passing on the ranks' output.
        self.output_error: OSError | None = None
        #: The signal by which this process was asked to stop.
        self.stopped_by: int | None = None
        self._selector = selectors.DefaultSelector()
        self._running: list[GuardProcess] = []
        self._deadline = _NEVER

    @property
    def running(self) -> bool:
        """Whether a guard is still running."""
        return bool(self._running)

    def run(self) -> None:
        """Start all guards and wait until they have ended, and everything that they started with them."""
        with self.supervision():
            self.start()
            while self.running:
                self.turn()

    @contextlib.contextmanager
    def supervision(self) -> Iterator[None]:
        """Receive the launcher's signals; at the end nothing that was started within is left."""
        keep = descendants(os.getpid())
        adopt_orphans()
        received = {*STOPPING, *PASSED_ON}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # Under nohup the job outlives its terminal.
            received.remove(signal.SIGHUP)
        with receiving(received, self._received, self._selector):
            if self._parent_pipe >= 0:
                with contextlib.suppress(PermissionError):  # epoll's answer for a file, which has no end
                    self._selector.register(self._parent_pipe, selectors.EVENT_READ, self._read_parent_pipe)
            try:
                yield
            finally:
                for guarded in self._running:
                    guarded.send(signal.SIGKILL)
                end_descendants(1.0, keep)
                self._view.close()
                self._selector.close()

    def start(self) -> None:
        """Start a guard for each assignment; again, after all have ended."""
        self._deadline = _NEVER
        self.ends = Ends(self.hosts)
        for assignment in self.assignments:
            guarded = GuardProcess(self._guard, assignment, self._environment, self._take)
            self._running.append(guarded)
            for stream in guarded.streams:
                read = functools.partial(self._read, guarded, stream)
                self._selector.register(stream.descriptor, selectors.EVENT_READ, read)
            if self.stopped_by is not None:  # A signal came while the guards were being started.
                guarded.send(signal.SIGTERM)

    def turn(self) -> None:
        """Handle what has happened, waiting for it at most 0.2 s."""
        ready = self._selector.select(_IDLE)
        for key, _ in ready:
            key.data()
        for guarded in list(self._running):
            for stream in () if ready else guarded.streams:
                stream.flush()
            code = guarded.exit_code()
            if code is not None:
                self._ended(guarded, code)
        now = time.monotonic()
        if self.ends.settled(now):
            self.stop(signal.SIGTERM)
        if now >= self._deadline:
            for guarded in self._running:
                guarded.send(signal.SIGKILL)

    def stop(self, number: int) -> None:
        """Ask all ranks to end; after the grace period they are killed. Only the first call has an effect."""
        if self._deadline == _NEVER:
            self._pass_on(number)

    def say(self, report: str) -> None:
        """Show what the user has to know of the job."""
        with contextlib.suppress(OSError):
            self._view.line(STDERR, f"accel launch: {report}\n".encode())

    def _pass_on(self, number: int) -> None:
        if number in STOPPING:
            grace = max((assignment.grace for assignment in self.assignments), default=0.0)
            self._deadline = min(self._deadline, time.monotonic() + grace + _SLACK)
        for guarded in self._running:
            # mpirun and pdsh take SIGINT for a question of the terminal's user.
            engine = guarded.assignment.rank < 0 and number == signal.SIGINT
            guarded.send(signal.SIGTERM if engine else number)

    def _received(self, number: int, _: FrameType | None) -> None:
        if number in STOPPING:
            self.stopped_by = self.stopped_by or number
        self._pass_on(number)
        if number in STOPPING and self.on_stop and not self._running:
            self.on_stop(number)

    def _read_parent_pipe(self) -> None:
        if not has_ended(self._parent_pipe):
            return
        self._selector.unregister(self._parent_pipe)
        self.stopped_by = self.stopped_by or signal.SIGHUP
        for guarded in self._running:
            guarded.cut()

    def _take(self, assignment: Assignment, target: int, line: bytes) -> None:
        text, message = decode_message(assignment.token, line) if target == STDERR else (line, None)
        if message is not None and message.rank >= 0:
            self.ends.take(message, time.monotonic())
            self._view.message(message)
        if text:
            try:
                self._view.line(target, text)
            except OSError as error:
                if error.errno != errno.EPIPE:  # nobody reads any more, as with `| head`
                    self.output_error = self.output_error or error
                raise
        if self._lost_host and target == STDERR and (lost := self._lost_host(text)):
            name, code = lost
            for rank, host in self.ends.hosts.items():
                if host.rpartition("@")[2] == name:
                    self.ends.lost(rank, code, time.monotonic(), self._deadline != _NEVER)

    def _read(self, guarded: GuardProcess, stream: Lines) -> None:
        if not stream.read():
            self._selector.unregister(stream.descriptor)
            guarded.close(stream)

    def _ended(self, guarded: GuardProcess, code: int) -> None:
        self._running.remove(guarded)
        for stream in list(guarded.streams):
            stream.drain()
            self._selector.unregister(stream.descriptor)
            guarded.close(stream)
        guarded.cut()
        if guarded.assignment.rank < 0:
            self.engine_code = code
        else:
            self.ends.lost(guarded.assignment.rank, code, time.monotonic(), self._deadline != _NEVER)
