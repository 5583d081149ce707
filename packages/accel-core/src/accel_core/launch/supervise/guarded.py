# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A running guard as its supervisor sees it: a process, two streams of lines, and a lifeline."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence

from accel_core.launch.supervise.assignment import Assignment
from accel_core.launch.supervise.lines import Lines, write_all
from accel_core.launch.supervise.view import STDERR, STDOUT


class Guarded:
    """Starts a guard. take: receives its lines, with `STDOUT` or `STDERR`."""

    def __init__(
        self,
        command: Sequence[str],
        assignment: Assignment,
        environment: Mapping[str, str],
        take: Callable[[Assignment, int, bytes], None],
    ) -> None:
        self.assignment = assignment
        lifeline, self._lifeline = os.pipe()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=lifeline,
            stdout=out_end,
            stderr=err_end,
            pass_fds=(assignment.stdin,) if assignment.stdin >= 0 else (),
            # Ctrl-C in the terminal reaches the launcher only, which passes it on.
            start_new_session=True,
        )
        for descriptor in (lifeline, out_end, err_end):
            os.close(descriptor)
        self.pid = self._process.pid
        self.streams = [
            Lines(out, lambda line: take(assignment, STDOUT, line)),
            Lines(err, lambda line: take(assignment, STDERR, line)),
        ]
        with contextlib.suppress(OSError):  # it has ended already
            write_all(self._lifeline, assignment.to_line())

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

    def flush(self) -> None:
        """Pass on unfinished lines."""
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.flush()

    def drain(self) -> None:
        """Pass on what it wrote before it ended."""
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.drain()

    def cut(self) -> None:
        """End its lifeline: it then ends its rank within few seconds."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
