# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Runs a guard, or an engine's command that starts guards (mpirun, srun, pdsh), to its end.

It passes on their output and the launcher's signals, and stops all ranks when one fails.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import FrameType

from accel_core.processes import SIGNALS
from accel_launch.job import Job
from accel_launch.protocol import (
    PASSED_ON,
    STDERR,
    STDOUT,
    STOPPING,
    Assignment,
    Loop,
    Message,
    adopt_orphans,
    descendants,
    end_processes,
    send,
    shell_code,
    signal_on_parent_end,
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
    """Reports of the guards, by rank. Times are those of `time.monotonic()` here."""

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
                failed = now - float(values.get("age", 0.0))
                # On a loaded machine this message may be late; the one of the traceback came before it.
                self.failures[rank] = min(failed, self.tracebacks.get(rank, failed)) if code == 1 else failed

    def lost(self, rank: int, code: int, now: float, stopped: bool) -> None:
        """Note that the guard of a rank has ended; if it was killed, without sending the rank's end."""
        if rank not in self.ended:
            self.ended[rank] = code or 1
            if not stopped:
                self.failures[rank] = now

    def settled(self, now: float) -> bool:
        """True if a rank has failed and it is clear which one was the first."""
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
        return f"rank {rank} on {self.hosts[rank]} {described(self.ended[rank])}"

    def outcome(self, stopped_by: int | None, engine_code: int | None = None) -> tuple[int, str]:
        """Return the launcher's exit code, and why it is not 0.

        The code is that of the first failure; else one that a rank chose when it was stopped; else 128 + the number of
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
        name = SIGNALS.get(-code, f"signal {-code}")
        guess = f" ({_GUESSES[name]})" if name in _GUESSES else ""
        return f"was killed by {name}{guess}"
    if name := SIGNALS.get(code - 128, ""):
        return f"ended with exit code {code} (128 + {name})"
    return f"ended with exit code {code}"


#: Seconds beyond the grace period after which a command that has not ended is killed.
_SLACK = 4.0
LostHost = Callable[[bytes], "tuple[str, int] | None"]


class Supervisor:
    """Runs a guard of this host's ranks, or the command of an engine that starts guards.

    environment: variables that the command gets in addition to those of this process. assignments: for the guard;
    empty for an engine. lost_host: host and exit code, if an engine's line on standard error names a host that has
    ended. inherited: descriptors for the command.
    """

    def __init__(
        self,
        job: Job,
        command: Sequence[str],
        view: View,
        environment: Mapping[str, str] | None = None,
        *,
        assignments: Sequence[Assignment] = (),
        lost_host: LostHost | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self._job, self._command, self._view, self._environment = job, command, view, environment or {}
        self._assignments = assignments
        self._lost_host, self._inherited = lost_host, inherited
        self.ends = Ends(job.hosts())
        #: Exit code of an engine's command, negative for a signal; None: none has ended.
        self.engine_code: int | None = None
        #: The first error in passing on the ranks' output.
        self.output_error: OSError | None = None
        #: The signal by which this process was asked to stop.
        self.stopped_by: int | None = None
        self._loop = Loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = float("inf")

    def run(self) -> None:
        """Start the command and wait until it has ended, and everything that was started with it."""
        keep = descendants()
        adopt_orphans()
        received = {*STOPPING, *PASSED_ON}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # Under nohup the job outlives its terminal.
            received.remove(signal.SIGHUP)
        self._loop.receive(received, self._received)
        try:
            self._watch()
        finally:
            end_processes(1.0, lambda: descendants() - keep)
            self._view.close()

    def _watch(self) -> None:
        directory = self._job.plan.directory
        orphaned = functools.partial(signal_on_parent_end, signal.SIGTERM, os.getpid())
        parent_pipe, kept = os.pipe()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **self._environment},
            cwd=directory if os.path.isdir(directory) else None,
            stdin=parent_pipe if self._assignments else subprocess.DEVNULL,
            stdout=out_end,
            stderr=err_end,
            pass_fds=self._inherited,
            # Ctrl-C in the terminal reaches the launcher only, which passes it on.
            start_new_session=True,
            # A guard notices the end of its parent pipe.
            preexec_fn=None if self._assignments else orphaned,
        )
        for descriptor in (parent_pipe, out_end, err_end):
            os.close(descriptor)
        for descriptor, target in ((out, STDOUT), (err, STDERR)):
            self._loop.read_lines(descriptor, functools.partial(self._take, target))
        if self.stopped_by is not None:  # A signal came before there was a process.
            self._send(signal.SIGTERM)
        with contextlib.suppress(OSError):  # it has ended already
            write_all(kept, json.dumps([asdict(each) for each in self._assignments]).encode() + b"\n")
        while (code := self._process.poll()) is None:
            self._loop.wait()
            now = time.monotonic()
            if self._deadline == float("inf") and self.ends.settled(now):
                self._pass_on(signal.SIGTERM)
            if now >= self._deadline:
                self._send(signal.SIGKILL)
        self._loop.drain((out, err))
        os.close(kept)
        self.engine_code = None if self._assignments else code
        for assignment in self._assignments:
            self._lose(assignment.rank, code)

    def _pass_on(self, number: int) -> None:
        if number in STOPPING:
            self._deadline = min(self._deadline, time.monotonic() + self._job.grace + _SLACK)
        self._send(number)

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            # mpirun and pdsh take SIGINT for a question of the terminal's user.
            engine = not self._assignments and number == signal.SIGINT
            send(signal.SIGTERM if engine else number, [-self._process.pid])

    def _received(self, number: int, _: FrameType | None) -> None:
        if number in STOPPING:
            self.stopped_by = self.stopped_by or number
        self._pass_on(number)

    def _take(self, target: int, line: bytes) -> None:
        text, message = Message.decode(self._job.token, line) if target == STDERR else (line, None)
        if message is not None:
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
        self.ends.lost(rank, code, time.monotonic(), self._deadline != float("inf"))
