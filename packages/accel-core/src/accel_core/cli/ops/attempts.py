# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Load ops in a child process. After a crash or a timeout, a new child continues with the remaining ops."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accel_core.cli.ops.process import Ended, WorkerProcess
from accel_core.cli.ops.rows import FAILED, SERVED, Row
from accel_core.errors import AcceleratorBroken

#: Time limit of the selection, which imports torch and a runtime.
SELECTION_SECONDS = 600.0
#: Interval of `Waiting` events while nothing else happens.
TICK_SECONDS = 1.0


@dataclass(frozen=True)
class Selected:
    """The accelerator is selected: its name, and a row for each op, served or missing."""

    device: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Started:
    """An op is being loaded."""

    builder: str


@dataclass(frozen=True)
class Waiting:
    """The op (empty: the selection) has not finished after `seconds`."""

    builder: str
    seconds: float


@dataclass(frozen=True)
class Tried:
    """An op was loaded (and run, if requested), or failed."""

    row: Row


@dataclass(frozen=True)
class Refused:
    """No op can be tried. `text`: the error. `usage`: a builder that does not exist was named."""

    text: str
    usage: bool


Event = Selected | Started | Waiting | Tried | Refused


def attempts(builders: Sequence[str], run: bool, seconds: float) -> Iterator[Event]:
    """Try the builders (default: all) and yield events.

    run:     run each op as well.
    seconds: time limit of each op.

    Raises AcceleratorBroken if the selection crashes or exceeds its time limit.
    """
    series = _Series(run, seconds)
    yield from series.run(builders)
    while series.left:
        yield from series.run([row.builder for row in series.left])


class _Series:
    """The child processes of one command, run in sequence, and the rows that are left to try."""

    def __init__(self, run: bool, seconds: float) -> None:
        self._arguments = ["--run"] if run else []
        self._limit = seconds
        self._selected = False
        self._current, self._began = "", 0.0  # the op that is being tried, and its start time
        self.left: list[Row] = []

    def run(self, builders: Sequence[str]) -> Iterator[Event]:
        """Try builders in one child until it ends. A crash is the result of the op that was being tried."""
        self._current = ""
        before = len(self.left)
        with WorkerProcess([*self._arguments, *builders]) as worker:
            try:
                for message in self._messages(worker):
                    if message is None:
                        yield Waiting(self._current, time.monotonic() - self._began)
                    elif message["kind"] == "started":
                        self._current = message["builder"]
                        worker.printed = message["printed"]
                        yield Started(self._current)
                    else:
                        yield from self._events(message)
                        self._current = ""
            except Ended as ended:
                if self._current:
                    yield self._finish(self._current, Row(self._current, "", FAILED, str(ended)))
                elif len(self.left) == before:
                    raise _broken(str(ended)) from None

    def _messages(self, worker: WorkerProcess) -> Iterator[dict[str, Any] | None]:
        """Yield messages up to the last one, and None at every interval without one. Raises Ended."""
        self._began = time.monotonic()
        while True:
            limit = self._limit if self._current else SELECTION_SECONDS
            left = self._began + limit - time.monotonic()
            message = worker.message(min(left, TICK_SECONDS))
            if message is None and left <= TICK_SECONDS:
                raise worker.kill(f"did not answer within {limit:g} s")
            yield message
            if message is not None:
                if message["kind"] in ("done", "refused"):
                    return
                self._began = time.monotonic()

    def _events(self, message: dict[str, Any]) -> Iterator[Event]:
        if message["kind"] == "refused":
            self.left = []
            yield Refused(message["text"], message["usage"])
        elif message["kind"] == "done":
            # An op may be served in one process and missing in the next.
            for row in list(self.left):
                yield self._finish(
                    row.builder, replace(row, state=FAILED, reason="missing in a second process")
                )
        elif message["kind"] == "ended":
            row = Row(**message["row"])
            yield self._finish(row.builder, row)
        elif not self._selected:
            self._selected = True
            rows = tuple(Row(**row) for row in message["rows"])
            self.left = [row for row in rows if row.state == SERVED]
            yield Selected(message["device"], rows)

    def _finish(self, builder: str, result: Row) -> Tried:
        row = next(row for row in self.left if row.builder == builder)
        self.left.remove(row)
        return Tried(replace(result, op=row.op))


def _broken(found: str) -> AcceleratorBroken:
    return AcceleratorBroken(
        what="the ops cannot be tried: no accelerator can be selected",
        found=found,
        expected="an accelerator that a process of its own can select",
        do="`accel doctor` shows every accelerator and its state",
    )
