# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Output of several processes, joined at the ends of lines."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

_CHUNK = 1 << 16


class Lines:
    """Reads a pipe and passes on whole lines; an unfinished line when it is long, or at `flush`.

    take: receives a line with its end, or an unfinished one without.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self.descriptor, self._take, self._rest = descriptor, take, b""
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Pass on what has arrived, at most 64 KiB; returns False at the end of the pipe."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self._split(data)
        if not data or len(self._rest) > _CHUNK:
            self.flush()
        return bool(data)

    def drain(self) -> None:
        """Pass on everything that is in the pipe now, without waiting for more."""
        try:
            while data := os.read(self.descriptor, _CHUNK):
                self._split(data)
        except OSError:
            pass
        self.flush()

    def flush(self) -> None:
        """Pass on an unfinished line: a prompt, a progress bar."""
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest)

    def _split(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._take(line + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; raises OSError, usually BrokenPipeError, if nobody reads them any more."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # The other end may have been made non-blocking by whoever shares it.
            select.select([], [descriptor], [])
