# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a measurement, on the standard error stream: a bar on a terminal, else nothing."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType

_WIDTH = 40


class Progress:
    """`with Progress() as progress:` … `progress.show(0.5, "what is measured")`.

    Ctrl-C ends the measurement. Python drops the exception where it comes while a weak reference's callback runs, as
    of an executor that is freed: then `show`, or the end, raises it.
    """

    def __enter__(self) -> Progress:
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._interrupted = False
        here = threading.current_thread() is threading.main_thread()
        self._heeds = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._heeds:
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        raise KeyboardInterrupt

    def show(self, part: float, text: str) -> None:
        """Show how much is done, from 0 to 1, and what is measured now."""
        if self._interrupted:
            raise KeyboardInterrupt
        if self._shown:
            full = round(min(part, 1) * _WIDTH)
            sys.stderr.write(f"\r{'█' * full}{'░' * (_WIDTH - full)} {text[:36]:36}")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._heeds:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._shown:
            sys.stderr.write(f"\r{' ' * (_WIDTH + 38)}\r")
        if self._interrupted and kind is None:
            raise KeyboardInterrupt
