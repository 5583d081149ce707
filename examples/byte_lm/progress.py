# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is seen of a run while it trains: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

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
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
        )
        self.bar = Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True, refresh_per_second=4
        )
        self.task = self.bar.add_task("", total=1.0)
        self.bar.update(self.task, completed=progress)
        self.started, self.first, self.line = time.monotonic(), progress, int(progress * LINES)

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
        self.bar.update(self.task, completed=progress, description=text)
        if not self.console.is_terminal and int(progress * LINES) > self.line:
            self.line = int(progress * LINES)
            self.say(f"{progress:4.0%}  {text}  {self._left(progress)} left")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self, progress: float) -> str:
        spent = time.monotonic() - self.started
        minutes, seconds = divmod(round(spent / (progress - self.first) * (1 - progress)), 60)
        return f"{minutes}:{seconds:02d}"
