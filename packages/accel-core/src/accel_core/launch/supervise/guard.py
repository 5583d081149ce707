# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The guard of one rank: its parent process, which passes on output and signals, and leaves nothing behind.

The rank is the leader of a session and process group of its own. Everything that it starts stays below the guard
(`adopt_orphans`). The guard ends when the rank has ended, and ends the rank when its own standard input, the
lifeline, ends: then the launcher or its agent no longer exists. If the guard is killed, the kernel kills the rank.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from accel_core.launch.supervise import messages
from accel_core.launch.supervise.assignment import Assignment
from accel_core.launch.supervise.lines import Lines
from accel_core.launch.supervise.output import Output
from accel_core.launch.supervise.processes import (
    PASSED_ON,
    STOPPING,
    adopt_orphans,
    end_descendants,
    send_group,
    signal_on_parent_end,
)
from accel_core.launch.supervise.usage import Usage

#: Seconds for a rank without launcher, for an engine's command without launcher, and for what a rank leaves behind.
#: They follow each other where mpirun has to reach another host; after 10 s all has ended.
ORPHAN_GRACE, ENGINE_GRACE, REST_GRACE = 3.0, 1.0, 1.0
_LIFELINE = 0
_IDLE, _STATUS = 0.2, 1.0


class Guard:
    """Runs the command of one assignment."""

    def __init__(self, assignment: Assignment, environment: Mapping[str, str]) -> None:
        self._assignment = assignment
        self._environment = {**environment, **assignment.environment}
        self._output = Output(assignment.log, lambda: self._say("traceback"))
        self._selector = selectors.DefaultSelector()
        self._pid = 0
        self._stopping = False
        self._deadline = float("inf")

    def run(self) -> int:
        """Run the rank to its end; returns its exit code, or 128 + the number of the signal that killed it.

        Raises OSError if the program cannot be started.
        """
        adopt_orphans()
        self._receive_signals()
        self._start()
        code = os.waitstatus_to_exitcode(self._watch())
        ended, stopped = time.monotonic(), self._stopping
        self._drain()
        self._report(code, ended, stopped)
        end_descendants(min(REST_GRACE, self._assignment.grace))
        self._drain()
        return code if code >= 0 else 128 - code

    def _start(self) -> None:
        stdin = self._assignment.stdin
        process = subprocess.Popen(
            list(self._assignment.command),
            env=self._environment,
            cwd=self._assignment.directory or None,
            stdin=subprocess.DEVNULL if stdin < 0 else stdin,
            stdout=self._output.out,
            stderr=self._output.err,
            # MPI libraries talk to mpirun through an inherited descriptor (PMI_FD).
            close_fds=False,
            start_new_session=True,
            preexec_fn=functools.partial(_end_with, os.getpid()),
        )
        self._output.close_writing()
        self._pid = process.pid
        process.returncode = 0  # The guard reaps all its children itself.
        self._say("start", pid=process.pid)
        if self._stopping:  # A signal came before there was a process to pass it on to.
            send_group(signal.SIGTERM, self._pid)

    def _receive_signals(self) -> None:
        reading, writing = os.pipe()
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (*STOPPING, *PASSED_ON):
            signal.signal(number, self._received)
        self._selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))
        self._selector.register(_LIFELINE, selectors.EVENT_READ, self._lifeline)

    def _received(self, number: int, _: FrameType | None) -> None:
        if number in STOPPING:
            # Ctrl-C a second time: at once.
            again = self._stopping and number == signal.SIGINT
            self._stop_within(0.0 if again else self._assignment.grace)
        if self._pid:
            send_group(number, self._pid)

    def _lifeline(self) -> None:
        try:
            if os.read(_LIFELINE, 4096):
                return
        except OSError:
            pass
        self._selector.unregister(_LIFELINE)
        grace = ENGINE_GRACE if self._assignment.rank < 0 else ORPHAN_GRACE
        self._stop_within(min(grace, self._assignment.grace))
        send_group(signal.SIGTERM, self._pid)

    def _stop_within(self, grace: float) -> None:
        self._stopping = True
        self._deadline = min(self._deadline, time.monotonic() + grace)

    def _watch(self) -> int:
        """Return the rank's wait status when it has ended."""
        for stream in self._output.streams:
            self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)
        usage, next_status = Usage(), time.monotonic() + _STATUS
        while (status := self._reaped()) is None:
            ready = self._selector.select(_IDLE)
            for key, _ in ready:
                if isinstance(key.data, Lines):
                    self._read(key.data)
                else:
                    key.data()
            if not ready:
                self._flush()
            now = time.monotonic()
            if now >= self._deadline:
                send_group(signal.SIGKILL, self._pid)
            if self._assignment.status and now >= next_status:
                next_status = now + _STATUS
                self._say("status", **usage.sample(), last=self._last_line())
        return status

    def _read(self, stream: Lines) -> None:
        try:
            open_ = stream.read()
        except OSError:  # Nobody reads our output: the rank shall get the same error.
            open_ = False
        if not open_:
            self._selector.unregister(stream.descriptor)
            self._output.streams.remove(stream)
            os.close(stream.descriptor)

    def _flush(self) -> None:
        for stream in self._output.streams:
            with contextlib.suppress(OSError):
                stream.flush()

    def _drain(self) -> None:
        for stream in self._output.streams:
            with contextlib.suppress(OSError):
                stream.drain()

    def _reaped(self) -> int | None:
        """Reap the children that have ended; returns the status of the rank if it is one of them."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == self._pid:
                return status
            if not pid:
                return None

    def _report(self, code: int, ended: float, stopped: bool) -> None:
        failed_at = ended
        if code == 1 and self._output.traceback:
            # Python may take long to end after an exception, and other ranks fail meanwhile because of it.
            failed_at = self._output.traceback
        if code and not stopped:
            for line in self._output.untold():
                self._output.message(
                    messages.encode_line(self._assignment.token, self._assignment.rank, line)
                )
        self._say("end", code=code, age=time.monotonic() - failed_at, stopped=stopped)

    def _say(self, kind: str, **values: Any) -> None:
        self._output.message(messages.encode(self._assignment.token, kind, self._assignment.rank, **values))

    def _last_line(self) -> str:
        last = self._output.last
        return last[-1].decode("utf-8", "replace")[:200] if last else ""


def _end_with(guard: int) -> None:
    signal_on_parent_end(signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(128 + signal.SIGKILL)
