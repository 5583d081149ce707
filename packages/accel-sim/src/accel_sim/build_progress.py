# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Report a long build on standard error: one live line on a terminal, a line now and then in a pipe or a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TextIO

#: Seconds between two lines in a pipe while nothing else is written.
INTERVAL = 8.0
#: Seconds between two updates of the live line.
REFRESH = 0.5
#: Seconds after which a build in another process is mentioned; finding a finished one takes less.
PATIENCE = 1.0
_ERASE = "\r\x1b[K"


class BuildProgress:
    """A context around a build that this process or another one carries out.

    Nothing is written when the library is found in the cache. Of several ranks on a machine only the first reports.
    """

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream is not None and not self._stream.closed and self._stream.isatty()
        self._silent = self._stream is None or os.environ.get("LOCAL_RANK", "0") != "0"
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, name="accel-build-progress", daemon=True)
        self._started = time.monotonic()
        self._running: list[str] = []
        self._total = self._done = 0
        self._spoke = False

    def __enter__(self) -> BuildProgress:
        self._thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_rest: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._spoke and error is None:
            self._line(f"{self._what}: ready after {self._seconds()}")
        elif self._spoke and self._live:
            self._write(_ERASE)

    def begin(self, total: int, note: str) -> None:
        """Say that this process builds. total: number of parts; note: the first line."""
        with self._lock:
            self._started, self._total = time.monotonic(), total
        self._line(f"{self._what}: {note}")

    def part(self, name: str) -> None:
        """Say that a part is being built."""
        with self._lock:
            self._running.append(name)

    def done(self, name: str) -> None:
        """Say that a part is built."""
        with self._lock:
            self._running.remove(name)
            self._done += 1
            count = f"{self._done} of {self._total}"
        self._line(f"{self._what}: {name} built, {count}, {self._seconds()}")

    def _report(self) -> None:
        """Run in a thread: show signs of life until the build has ended."""
        if self._silent or self._ended.wait(PATIENCE):
            return
        wait = 0.0
        while not self._ended.wait(wait):
            text = self._state()
            self._write(f"{_ERASE}{text}" if self._live else f"{text}\n")
            wait = REFRESH if self._live else INTERVAL

    def _state(self) -> str:
        with self._lock:
            if not self._total:
                return f"{self._what}: waiting for another process that builds it, {self._seconds()}"
            now = "linking" if self._done == self._total else "starting"
            if self._running:
                now = f"building {', '.join(self._running)}"
            return f"{self._what}: {now}, {self._done} of {self._total} done, {self._seconds()}"

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:.0f} s"

    def _line(self, text: str) -> None:
        self._write(f"{_ERASE if self._live else ''}{text}\n")

    def _write(self, text: str) -> None:
        if self._silent:
            return
        self._spoke = True
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # closed, or its reader is gone: the build goes on
            self._silent = True
