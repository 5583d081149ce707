# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The output of one rank on its way to the launcher or to its log; remembers its last lines."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from accel_core.launch.engine_errors import LogUnwritable
from accel_core.launch.supervise import messages
from accel_core.launch.supervise.lines import Lines, write_all

STDOUT, STDERR = 1, 2
_LAST_LINES = 20
_LONGEST = 1000
_TRACEBACK = b"Traceback (most recent call last)"


class Output:
    """Two pipes for a rank to write to.

    log: file for the output; empty: this process's own standard output and error. on_traceback: called when the rank
    begins to write a traceback.
    """

    def __init__(self, log: str, on_traceback: Callable[[], None]) -> None:
        self.on_traceback = on_traceback
        self._log = -1
        if log:
            self._log = _opened(Path(log))
        self._at_line_start = {STDOUT: True, STDERR: True}
        self.last: deque[bytes] = deque(maxlen=_LAST_LINES)
        #: When the rank last began to write a traceback, by time.monotonic(); 0.0 if it never did.
        self.traceback = 0.0
        (out, self.out), (err, self.err) = os.pipe(), os.pipe()
        self.streams = [
            Lines(out, lambda line: self.take(STDOUT, line)),
            Lines(err, lambda line: self.take(STDERR, line)),
        ]

    def close_writing(self) -> None:
        """Close the writing ends, which the rank has now."""
        os.close(self.out)
        os.close(self.err)

    def take(self, target: int, line: bytes) -> None:
        """Write one line to its target; raises OSError if nobody reads it any more."""
        if text := line.rstrip().rpartition(b"\r")[2]:  # of a progress bar the last state
            self.last.append(text[:_LONGEST])
        if line.startswith(_TRACEBACK):
            self.traceback = time.monotonic()
            self.on_traceback()
        self._at_line_start[target] = line.endswith(b"\n")
        write_all(target if self._log < 0 else self._log, line)

    def untold(self) -> list[bytes]:
        """Return the last lines for a report; of a traceback that is in the output already, only the error."""
        last = list(self.last)
        if self._log < 0 and any(line.startswith(_TRACEBACK) for line in last):
            return last[-1:]
        return last

    def message(self, line: bytes) -> None:
        """Write a message to the launcher, at the start of a line."""
        if not self._at_line_start[STDERR] and self._log < 0:
            line = b"\n" + line
            self._at_line_start[STDERR] = True
        try:
            write_all(STDERR, line)
        except OSError:  # The launcher no longer exists.
            pass


def _opened(path: Path) -> int:
    """Open a log for appending: a file of this user, no link, pipe or device that somebody has put there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o644)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            return descriptor
        os.close(descriptor)
        reason = "it is no file of yours"
    except OSError as error:
        reason = str(error.strerror)
    raise LogUnwritable(
        what="cannot write the log of a rank",
        found=f"{path}: {reason}",
        expected="a new file, or one of this user",
        do="give --enable_each_rank_log a folder that only you can write to",
    )


def report_failure(token: str, rank: int, text: str, code: int) -> int:
    """Tell the launcher that a rank could not be started, and why; returns the code."""
    lines = [messages.encode_line(token, rank, line.encode()) for line in text.splitlines()]
    lines.append(messages.encode(token, "end", rank, code=code, age=0.0, stopped=False))
    with contextlib.suppress(OSError):
        for line in lines:
            write_all(STDERR, line)
    return code
