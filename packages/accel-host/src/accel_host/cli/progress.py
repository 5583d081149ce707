# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a measurement, on the standard error stream: a bar on a terminal, else nothing."""

from __future__ import annotations

import sys
from types import TracebackType

_WIDTH = 40


class Progress:
    """`with Progress() as progress:` … `progress.show(0.5, "what is measured")`."""

    def __enter__(self) -> Progress:
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        return self

    def show(self, part: float, text: str) -> None:
        """Show how much is done, from 0 to 1, and what is measured now."""
        if self._shown:
            full = round(min(part, 1) * _WIDTH)
            sys.stderr.write(f"\r{'█' * full}{'░' * (_WIDTH - full)} {text[:36]:36}")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write(f"\r{' ' * (_WIDTH + 38)}\r")
