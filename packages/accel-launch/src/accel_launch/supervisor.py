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
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

from accel_launch.protocol import (
    GUARD,
    PASSED_ON,
    STDERR,
    STDOUT,
    STOPPING,
    Assignment,
    Loop,
    Message,
    adopt_orphans,
    descendants,
    end_descendants,
    shell_code,
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
        write_all(STDERR, message.encode(self._token))


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
        first = min(self.failures.values(), default=now)
        slower = (
            rank not in self.ended and first - _SLOW_END < at < first for rank, at in self.tracebacks.items()
        )
        return now >= first + SETTLE and (now > first + _SLOW_END or not any(slower))

    def report(self) -> str:
        """Return which rank failed first, how, and its last lines; empty if none failed."""
        if not self.failures:
            return ""
        first, *later = sorted(self.failures, key=lambda rank: self.failures[rank])
        text = self._end_of(first)
        if last := self.lines.get(first):
            text += "; its last lines:\n" + "\n".join(f"    {line}" for line in last)
        if later:
            more = f" and {len(later) - 4} more" if len(later) > 4 else ""
            text += f"\n  failed after it: {'; '.join(map(self._end_of, later[:4]))}{more}"
        return text

    def _end_of(self, rank: int) -> str:
        return f"rank {rank} on {self.hosts.get(rank, 'an unknown host')} {described(self.ended[rank])}"

    def outcome(self, stopped_by: int | None, engine_code: int | None = None) -> tuple[int, str]:
        """Return the launcher's exit code, and why it is not 0.

        The code is that of the first failure, else one that a rank chose when it was stopped, else 128 + the number of
        the signal that stopped it. stopped_by: the signal that the launcher received. engine_code: as in `Supervisor`.
        """
        if report := self.report():
            return shell_code(self.ended[min(self.failures, key=lambda rank: self.failures[rank])]), report
        codes = [code for _, code in sorted(self.ended.items())]
        if stopped_by is not None:
            code = next((code for code in codes if code > 0), 128 + stopped_by)
            return code, f"stopped by {signal.Signals(stopped_by).name}"
        silent = len(self.hosts.keys() - self.ended.keys())
        if engine_code is not None and (engine_code or silent):
            ranks = f"; no end was reported of {silent} of {len(self.hosts)} ranks" if silent else ""
            return shell_code(engine_code) or 1, f"the engine's command {described(engine_code)}{ranks}"
        return next((shell_code(code) for code in codes if code), 0), ""


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
    """Starts a guard. inherited: descriptors that it gets beside its standard streams."""

    def __init__(self, assignment: Assignment, inherited: Sequence[int]) -> None:
        self.assignment = assignment
        parent_pipe, self._parent_pipe = os.pipe()
        (self.out, out), (self.err, err) = os.pipe(), os.pipe()
        self.process = subprocess.Popen(
            GUARD,
            stdin=parent_pipe,
            stdout=out,
            stderr=err,
            pass_fds=[*inherited, *([assignment.stdin] if assignment.stdin >= 0 else [])],
            # Ctrl-C in the terminal reaches the launcher only, which passes it on.
            start_new_session=True,
        )
        for descriptor in (parent_pipe, out, err):
            os.close(descriptor)
        with contextlib.suppress(OSError):  # it has ended already
            write_all(self._parent_pipe, assignment.to_line())

    def cut(self) -> None:
        """End its parent pipe: it then ends its rank within few seconds."""
        if self._parent_pipe >= 0:
            os.close(self._parent_pipe)
            self._parent_pipe = -1


#: Seconds beyond the grace period after which a guard that has not ended is killed.
_SLACK = 4.0
_NEVER = float("inf")
LostHost = Callable[[bytes], "tuple[str, int] | None"]


class Supervisor:
    """Runs the guards of `assignments`; one with a negative rank runs an engine's command.

    hosts: name of the host of each rank. parent_pipe: a descriptor at whose end everything is stopped; -1: none.
    lost_host: host and exit code, if an engine's line on standard error says that a host has ended. inherited:
    descriptors for an engine's command.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        hosts: Mapping[int, str],
        view: View,
        *,
        parent_pipe: int = -1,
        lost_host: LostHost | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self.assignments, self.hosts, self._view = assignments, hosts, view
        self._parent_pipe, self._lost_host, self._inherited = parent_pipe, lost_host, inherited
        self.ends = Ends(hosts)
        #: Called with the signal by which this process is asked to stop while no guard is running.
        self.on_stop: Callable[[int], None] | None = None
        #: Exit code of an engine's command, negative for a signal; None: none has ended.
        self.engine_code: int | None = None
        #: The first error in passing on the ranks' output.
        self.output_error: OSError | None = None
        #: The signal by which this process was asked to stop.
        self.stopped_by: int | None = None
        self._loop = Loop()
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
        with self._loop.receiving(received, self._received):
            if self._parent_pipe >= 0:
                self._loop.call_at_end(self._parent_pipe, self._cut)
            try:
                yield
            finally:
                self._send(signal.SIGKILL)
                end_descendants(1.0, keep)
                self._view.close()

    def start(self) -> None:
        """Start a guard for each assignment; again, after all have ended."""
        self._deadline = _NEVER
        self.ends = Ends(self.hosts)
        for assignment in self.assignments:
            guarded = GuardProcess(assignment, self._inherited)
            self._running.append(guarded)
            for descriptor, target in ((guarded.out, STDOUT), (guarded.err, STDERR)):
                take = functools.partial(self._take, assignment, target)
                self._loop.read_lines(descriptor, take)
            if self.stopped_by is not None:  # A signal came while the guards were being started.
                guarded.process.send_signal(signal.SIGTERM)

    def turn(self) -> None:
        """Handle what has happened, waiting for it at most 0.2 s."""
        self._loop.wait()
        for guarded in list(self._running):
            code = guarded.process.poll()
            if code is not None:
                self._ended(guarded, code)
        now = time.monotonic()
        if self.ends.settled(now):
            self.stop(signal.SIGTERM)
        if now >= self._deadline:
            self._send(signal.SIGKILL)

    def stop(self, number: int) -> None:
        """Ask all ranks to end; after the grace period they are killed. Only the first call has an effect."""
        if self._deadline == _NEVER:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if number in STOPPING:
            grace = max((assignment.grace for assignment in self.assignments), default=0.0)
            self._deadline = min(self._deadline, time.monotonic() + grace + _SLACK)
        self._send(number)

    def _send(self, number: int) -> None:
        for guarded in self._running:
            # mpirun and pdsh take SIGINT for a question of the terminal's user.
            engine = guarded.assignment.rank < 0 and number == signal.SIGINT
            guarded.process.send_signal(signal.SIGTERM if engine else number)

    def _received(self, number: int, _: FrameType | None) -> None:
        if number in STOPPING:
            self.stopped_by = self.stopped_by or number
        self._pass_on(number)
        if number in STOPPING and self.on_stop and not self._running:
            self.on_stop(number)

    def _cut(self) -> None:
        self.stopped_by = self.stopped_by or signal.SIGHUP
        for guarded in self._running:
            guarded.cut()

    def _take(self, assignment: Assignment, target: int, line: bytes) -> None:
        text, message = line, None
        if target == STDERR:
            text, message = Message.decode(assignment.token, line)
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
                    self._lose(rank, code)

    def _lose(self, rank: int, code: int) -> None:
        self.ends.lost(rank, code, time.monotonic(), self._deadline != _NEVER)

    def _ended(self, guarded: GuardProcess, code: int) -> None:
        self._running.remove(guarded)
        self._loop.drain((guarded.out, guarded.err))
        for descriptor in (guarded.out, guarded.err):
            self._loop.close(descriptor)
        guarded.cut()
        if guarded.assignment.rank < 0:
            self.engine_code = code
        else:
            self._lose(guarded.assignment.rank, code)
