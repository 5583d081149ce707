# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Load ops in a child process, and show each as it is tried.

After a crash or a timeout, a new child continues with the remaining ops. On a terminal a table is updated; in a pipe
there is a line for each op.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from accel_core.cli.child import Reply, Worker
from accel_core.cli.ops.listing import FAILED, MISSING, SERVED, Row
from accel_core.cli.status import working
from accel_core.errors import AcceleratorBroken

_STEPS = "accel_core.cli.ops.steps"
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


def attempts(builders: Sequence[str], action: str, seconds: float) -> Iterator[Event]:
    """Try the builders (default: all) and yield events.

    action:  `build` loads each op, `test` runs it as well.
    seconds: time limit of each op.

    Raises AcceleratorBroken if the selection crashes or exceeds its time limit.
    """
    left: dict[str, Row] | None = None
    while left is None or left:
        with closing(Worker(_STEPS)) as worker:
            worker.send("select", *(builders if left is None else left))
            reply = yield from _reply(worker, "", SELECTION_SECONDS)
            if reply.failure:
                raise _broken(_ending(reply))
            if "refused" in reply.answer:
                yield Refused(reply.answer["refused"], reply.answer["usage"])
                return
            rows = tuple(Row(**row) for row in reply.answer["rows"])
            served = {row.builder: row for row in rows if row.state == SERVED}
            if left is None:
                left = dict(served)
                yield Selected(reply.answer["device"], rows)
            yield from _try(worker, action, seconds, served, left)


def _try(
    worker: Worker, action: str, seconds: float, served: Iterable[str], left: dict[str, Row]
) -> Iterator[Event]:
    """Try the served ops in one child until it ends, and remove them from `left`."""
    for builder in served:
        yield Started(builder)
        worker.send(action, builder)
        reply = yield from _reply(worker, builder, seconds)
        row = Row(builder, "", FAILED, _ending(reply)) if reply.failure else Row(**reply.answer)
        yield Tried(replace(row, op=left.pop(builder).op))
        if reply.failure:
            return
    # An op may be served in one process and missing in the next.
    for row in left.values():
        yield Tried(replace(row, state=FAILED, reason="missing in a second process"))
    left.clear()


def _reply(worker: Worker, builder: str, limit: float) -> Generator[Waiting, None, Reply]:
    began = time.monotonic()
    while not worker.wait(min(TICK_SECONDS, began + limit - time.monotonic())):
        passed = time.monotonic() - began
        if passed >= limit:
            break
        yield Waiting(builder, passed)
    return worker.reply(limit)


def _ending(reply: Reply) -> str:
    return ": ".join(filter(None, [reply.failure, reply.last_line]))


def _broken(found: str) -> AcceleratorBroken:
    return AcceleratorBroken(
        what="the ops cannot be tried: no accelerator can be selected",
        found=found,
        expected="an accelerator that a process of its own can select",
        do="`accel doctor` shows every accelerator and its state",
    )


_STYLES = {"served": "green", "ok": "green", "failed": "bold red", "waiting": "dim"}
#: Interval in a pipe at which a slow op is mentioned.
_REMINDER_SECONDS = 10
_SELECTING = "importing torch and selecting the accelerator"


class Progress(Protocol):
    """Display of events as they happen."""

    def update(self, event: Event) -> None:
        """Show the event."""

    def stop(self) -> None:
        """Show the remaining rows; called once."""


@contextlib.contextmanager
def progress(action: str, quiet: bool) -> Iterator[Progress]:
    """Yield the display for standard output: none if `quiet`, a live table on a terminal, lines elsewhere."""
    console = Console(highlight=False)
    shown: Progress = (
        _Nothing() if quiet else _LiveTable(console, action) if console.is_terminal else _Lines()
    )
    try:
        yield shown
    finally:
        shown.stop()


def selecting(quiet: bool) -> contextlib.AbstractContextManager[None]:
    """Show on a terminal that the accelerator is being selected, which imports torch."""
    return working(_SELECTING, quiet)


def show(device: str, rows: Iterable[Row]) -> None:
    """Print rows that do not change."""
    console = Console(highlight=False)
    rows = list(rows)
    if console.is_terminal:
        console.print(_table(device, rows))
        _print_missing(console, device, rows)
    else:
        for row in rows:
            print(_line(row, _width(rows), device))


class _Nothing:
    def update(self, event: Event) -> None:
        pass

    def stop(self) -> None:
        pass


class _Lines:
    """A line for each op as soon as it is tried; missing ops at the end."""

    def __init__(self) -> None:
        self._device = ""
        self._missing: list[Row] = []
        self._columns = 0
        self._reminders = 0

    def update(self, event: Event) -> None:
        if isinstance(event, Selected):
            self._device, self._columns = event.device, _width(event.rows)
            self._missing = [row for row in event.rows if row.state == MISSING]
        elif isinstance(event, Tried):
            print(_line(event.row, self._columns, self._device), flush=True)
        elif isinstance(event, Waiting) and event.seconds >= _REMINDER_SECONDS * (self._reminders + 1):
            self._reminders += 1
            print(f"{event.builder or _SELECTING}: {event.seconds:.0f} s so far", flush=True)
            return
        if not isinstance(event, Waiting):
            self._reminders = 0

    def stop(self) -> None:
        for row in self._missing:
            print(_line(row, self._columns, self._device))


class _LiveTable:
    """A table whose rows change while ops are tried."""

    def __init__(self, console: Console, action: str) -> None:
        self._console = console
        self._verb = {"build": "loading", "test": "testing"}[action]
        self._device, self._rows = "", dict[str, Row]()
        self._current, self._began = "", time.monotonic()
        self._stopped = False
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)
        self._live.start()

    def update(self, event: Event) -> None:
        if isinstance(event, Selected):
            self._device = event.device
            self._rows = {row.builder: row for row in event.rows}
        elif isinstance(event, Started):
            self._current, self._began = event.builder, time.monotonic()
        elif isinstance(event, Tried):
            self._rows[event.row.builder] = event.row
            self._current = ""

    def stop(self) -> None:
        self._stopped = True
        self._live.stop()
        _print_missing(self._console, self._device, list(self._rows.values()))

    def _render(self) -> RenderableType:
        # Called by the thread of `Live` too: rows are replaced, never changed.
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if not self._device:
            return Text("" if self._stopped else f"{_SELECTING}: {seconds}")
        rows = []
        for row in list(self._rows.values()):
            if row.builder == self._current:
                row = replace(row, state=f"{self._verb} {seconds}", reason="")
            elif row.state == SERVED:
                row = replace(row, state="waiting", reason="")
            rows.append(row)
        return _table(self._device, rows)


def _table(device: str, rows: Iterable[Row]) -> Table:
    table = Table("builder", "state", "loaded in", "why", title=f"ops of {device}", box=box.SIMPLE)
    for row in rows:
        if row.state != MISSING:
            cells = (row.builder, row.state, _seconds(row), row.reason)
            table.add_row(*map(Text, cells), style=_STYLES.get(row.state))
    return table


def _print_missing(console: Console, device: str, rows: Iterable[Row]) -> None:
    """Print the missing ops, grouped by reason."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.state == MISSING:
            groups.setdefault(_reason(row, device), []).append(row.builder)
    for reason, builders in groups.items():
        console.print(Text("missing ", "bold") + Text(", ".join(builders)), soft_wrap=True)
        console.print(Text(f"        {reason}"), soft_wrap=True)


def _line(row: Row, width: int, device: str) -> str:
    return f"{row.builder:<{width}}  {row.state:<7}  {_seconds(row):>8}  {_reason(row, device)}".rstrip()


def _reason(row: Row, device: str) -> str:
    # The reason of a missing op begins with what the row already shows.
    return row.reason.removeprefix(f"{row.builder} on {device}: ")


def _width(rows: Iterable[Row]) -> int:
    return max((len(row.builder) for row in rows), default=0)


def _seconds(row: Row) -> str:
    return "" if row.seconds is None else f"{row.seconds:.2f} s"
