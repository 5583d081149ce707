# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Runs guards to their end: passes on their output and the launcher's signals, and stops all when one rank fails.

A guard runs a rank of this host, or an engine's command (mpirun, srun, pdsh) whose ranks have guards of their own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from accel_core.launch.supervise import messages
from accel_core.launch.supervise.assignment import Assignment
from accel_core.launch.supervise.failure import Ends
from accel_core.launch.supervise.guarded import Guarded
from accel_core.launch.supervise.lines import Lines
from accel_core.launch.supervise.processes import (
    PASSED_ON,
    STOPPING,
    adopt_orphans,
    descendants,
    end_descendants,
)
from accel_core.launch.supervise.view import STDERR, View

_IDLE = 0.2
#: Seconds beyond the grace period after which a guard that has not ended is killed.
_SLACK = 4.0
_NEVER = float("inf")
LostHost = Callable[[bytes], "tuple[str, int] | None"]


class Supervisor:
    """Runs the guards of `assignments`; one with a negative rank runs an engine's command.

    guard: command of a guard. environment: that of the guards. hosts: name of the host of each rank. lifeline: a
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
        lifeline: int = -1,
        lost_host: LostHost | None = None,
    ) -> None:
        self._guard, self.assignments, self._environment = guard, assignments, environment
        self._view, self._lifeline, self._lost_host = view, lifeline, lost_host
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
        self._running: list[Guarded] = []
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
        with self._signals():
            try:
                yield
            finally:
                for guarded in self._running:
                    guarded.send(signal.SIGKILL)
                end_descendants(1.0, keep)
                self._view.close()
                self._selector.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        reading, writing = os.pipe()
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        received = {*STOPPING, *PASSED_ON}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # Under nohup the job outlives its terminal.
            received.remove(signal.SIGHUP)
        former = {number: signal.signal(number, self._received) for number in received}
        former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))
        if self._lifeline >= 0:
            with contextlib.suppress(
                PermissionError
            ):  # epoll's answer for a file, which has no end to wait for
                self._selector.register(self._lifeline, selectors.EVENT_READ, self._read_lifeline)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in former.items():
                signal.signal(number, handler)
            os.close(reading)
            os.close(writing)

    def start(self) -> None:
        """Start a guard for each assignment; again, after all have ended."""
        self._deadline = _NEVER
        self.ends = Ends(self.hosts)
        for assignment in self.assignments:
            guarded = Guarded(self._guard, assignment, self._environment, self._take)
            self._running.append(guarded)
            for stream in guarded.streams:
                self._selector.register(stream.descriptor, selectors.EVENT_READ, (guarded, stream))
            if self.stopped_by is not None:  # A signal came while the guards were being started.
                guarded.send(signal.SIGTERM)

    def turn(self) -> None:
        """Handle what has happened, waiting for it at most 0.2 s."""
        ready = self._selector.select(_IDLE)
        for key, _ in ready:
            if isinstance(key.data, tuple):
                self._read(*key.data)
            else:
                key.data()
        for guarded in list(self._running):
            if not ready:
                guarded.flush()
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

    def _read_lifeline(self) -> None:
        try:
            if os.read(self._lifeline, 4096):
                return
        except OSError:
            pass
        self._selector.unregister(self._lifeline)
        self.stopped_by = self.stopped_by or signal.SIGHUP
        for guarded in self._running:
            guarded.cut()

    def _take(self, assignment: Assignment, target: int, line: bytes) -> None:
        text, message = messages.decode(assignment.token, line) if target == STDERR else (line, None)
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

    def _read(self, guarded: Guarded, stream: Lines) -> None:
        try:
            open_ = stream.read()
        except OSError:  # Nobody reads our output: the ranks shall get the same error.
            open_ = False
        if not open_:
            self._selector.unregister(stream.descriptor)
            guarded.close(stream)

    def _ended(self, guarded: Guarded, code: int) -> None:
        self._running.remove(guarded)
        guarded.drain()
        for stream in list(guarded.streams):
            self._selector.unregister(stream.descriptor)
            guarded.close(stream)
        guarded.cut()
        if guarded.assignment.rank < 0:
            self.engine_code = code
        else:
            self.ends.lost(guarded.assignment.rank, code, time.monotonic(), self._deadline != _NEVER)
