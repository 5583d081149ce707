# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a run: a bar or lines while it trains, and signs of life during steps that report nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
)

from byte_lm import ranks

EVALUATIONS = 6  # evenly, the last one at the end
SILENCE = 1.5  # seconds
LINES = 20  # of a whole run, where there is no terminal


class TrainingProgress:
    """Context manager whose `update` follows one training run."""

    def __init__(self, console: Console, progress: float) -> None:
        self.console = console
        columns = (
            TextColumn("training"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[left]}"),
            SpinnerColumn(),
        )
        self.bar = Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True, refresh_per_second=4
        )
        self.task = self.bar.add_task("", total=1.0, left="")
        self.bar.update(self.task, completed=progress)
        self.started, self.first, self.line = time.monotonic(), progress, int(progress * LINES)
        self.validated, self.validations, self.spoke = 0.0, 0, time.monotonic()

    def __enter__(self) -> TrainingProgress:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def update(self, progress: float, step: int, loss: float, rate: float) -> None:
        """Progress from 0 to 1, the loss in bits per byte, the rate in tokens (bytes) per second."""
        text = f"step {step}  loss {loss:.3f} bits/byte  {rate:,.0f} tokens/s"
        left = f"{self._left(progress)} left"
        self.bar.update(self.task, completed=progress, description=text, left=left)
        if not self.console.is_terminal and int(progress * LINES) > self.line:
            self.line = int(progress * LINES)
            self.say(f"{progress:4.0%}  {text}  {left}")

    def validating(self, share: float) -> None:
        """A validation goes on, of which this share is done: a sign of life if nothing was said for a while."""
        self.bar.update(self.task, description=f"validating: {share:.0%}")
        if not self.console.is_terminal and time.monotonic() - self.spoke > SILENCE:
            self.say(f"      validating: {share:.0%}")

    def validation_ended(self, seconds: float) -> None:
        """A validation has taken this long; those that are left are part of the time that is left."""
        self.validated += seconds
        self.validations += 1

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.spoke = time.monotonic()
        self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self, progress: float) -> str:
        trained = time.monotonic() - self.started - self.validated
        seconds = trained / (progress - self.first) * (1 - progress)
        if self.validations:
            ahead = EVALUATIONS - int(self.first * EVALUATIONS) - self.validations
            seconds += self.validated / self.validations * max(ahead, 0)
        minutes, seconds = divmod(round(seconds), 60)
        return f"{minutes}:{seconds:02d}"


@contextmanager
def working(on: str) -> Iterator[None]:
    """Say what this step is, and while it lasts, how long it has; only on the rank that prints."""
    if not ranks.speaks():
        yield
        return
    print(f"{on} …", flush=True)
    ended = threading.Event()
    thread = threading.Thread(target=_remind, args=(ended, time.monotonic()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _remind(ended: threading.Event, began: float) -> None:
    while not ended.wait(SILENCE):
        print(f"      {time.monotonic() - began:.0f} s so far", flush=True)
