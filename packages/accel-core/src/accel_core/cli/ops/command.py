# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops test FusedAdamBuilder`: list, build or test the ops of the accelerator that a run would use.

`build` and `test` load the ops in a child process, and show each as it is tried. After a crash or a timeout, a new
child continues with the remaining ops. On a terminal a table is updated; in a pipe there is a line for each op.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from accel_core.api import get_accelerator
from accel_core.cli.main import seconds, working
from accel_core.cli.ops.listing import FAILED, MISSING, SERVED, Row, listed, with_packages
from accel_core.errors import AcceleratorBroken, UnknownBuilder
from accel_core.processes import Reply, Worker

#: Time limit of one op, which may have to be compiled.
SECONDS = 600.0
_WRONG_USAGE = 2
_ACTIONS = {
    "list": "list the ops; start nothing",
    "build": "load each op, which compiles what has to be",
    "test": "load each op, and run it on a tiny input",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions, each with its options."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    for name, summary in _ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=summary)
        action.add_argument("builders", nargs="*", metavar="BUILDER", help="FusedAdamBuilder …; default: all")
        action.add_argument("--json", action="store_true", help="print a JSON object")
        action.add_argument(
            "--timeout",
            type=seconds,
            default=SECONDS,
            metavar="SECONDS",
            help=f"time limit of each op (default {SECONDS:g})",
        )


def run(args: argparse.Namespace) -> int:
    """Print a row for each op; returns the exit status.

    0: success; 1: an op failed, or one that was named for build or test is missing; 2: no such builder.
    """
    try:
        return _list(args) if args.action == "list" else _try(args)
    except UnknownBuilder as error:
        print(error, file=sys.stderr)
        return _WRONG_USAGE


def _list(args: argparse.Namespace) -> int:
    with working(SELECTING, args.json):
        accelerator = get_accelerator()
        rows = listed(accelerator, args.builders)
    device = accelerator.device_name()
    if args.json:
        _print_json(device, rows)
    else:
        show(device, [with_packages(row) if row.builder in args.builders else row for row in rows])
    return 0


def _try(args: argparse.Namespace) -> int:
    """Load the ops in a child process, and run them for `test`. This process does not import torch."""
    with progress(args.action, quiet=args.json) as display:
        device, rows = attempt(args.builders, args.action, args.timeout, display)
    if args.json:
        _print_json(device, rows.values())
    bad = (FAILED, MISSING) if args.builders else (FAILED,)
    return int(any(row.state in bad for row in rows.values()))


def _print_json(device: str, rows: Iterable[Row]) -> None:
    print(json.dumps({"accelerator": device, "ops": [asdict(row) for row in rows]}, indent=2))


# ------------------------------------------------------------------------------ loading in a child

#: Runs `listing.main` in the child.
_CHILD = ("-c", "from accel_core.cli.ops.listing import main; main()")
#: Time limit of the selection, which imports torch and a runtime.
SELECTION_SECONDS = 600.0
#: Interval in a pipe at which a slow op is mentioned.
_REMINDER_SECONDS = 10
SELECTING = "importing torch and selecting the accelerator"


def attempt(
    builders: Sequence[str], action: str, seconds: float, display: Display
) -> tuple[str, dict[str, Row]]:
    """Try the builders (default: all); returns the accelerator's name and the rows by builder.

    action:  `build` loads each op, `test` runs it as well.
    seconds: time limit of each op.

    Raises UnknownBuilder, the error of a failed selection, and AcceleratorBroken if the selection crashes or exceeds
    its time limit.
    """
    device, rows, left = "", dict[str, Row](), list[str]()
    while not rows or left:
        with closing(Worker(*_CHILD)) as worker:
            worker.send("select", *(left or builders))
            reply = worker.receive(SELECTION_SECONDS, partial(display.waiting, ""))
            if reply.failure:
                raise _broken(_ending(reply))
            if "error" in reply.answer:
                raise reply.answer["error"]
            found: list[Row] = reply.answer["rows"]
            served = [row.builder for row in found if row.state == SERVED]
            if not rows:
                device = reply.answer["device"]
                rows = {row.builder: with_packages(row) if row.builder in builders else row for row in found}
                left = list(served)
                display.selected(device, rows)
            for row in _tried(worker, action, seconds, left, served, display):
                rows[row.builder] = replace(row, op=rows[row.builder].op)
                left.remove(row.builder)
                display.tried(rows[row.builder])
    return device, rows


def _tried(
    worker: Worker, action: str, seconds: float, left: Iterable[str], served: Iterable[str], display: Display
) -> Iterator[Row]:
    """Try what is left in one child until it ends."""
    for builder in list(left):
        if builder not in served:
            yield Row(builder, "", FAILED, "missing in a second process")
            continue
        display.waiting(builder, 0.0)
        worker.send(action, builder)
        reply = worker.receive(seconds, partial(display.waiting, builder))
        yield Row(builder, "", FAILED, _ending(reply)) if reply.failure else reply.answer["row"]
        if reply.failure:
            return


def _ending(reply: Reply) -> str:
    return ": ".join(filter(None, [reply.failure, reply.last_line]))


def _broken(found: str) -> AcceleratorBroken:
    return AcceleratorBroken(
        f"the ops cannot be tried: no accelerator can be selected: {found}",
        do="`accel doctor` shows every accelerator and its state",
    )


class Display:
    """Prints a line for each op as soon as it is tried, and the missing ops at the end. quiet: prints nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet, self._reminders = quiet, 0
        self._device, self._rows = "", dict[str, Row]()

    def selected(self, device: str, rows: Mapping[str, Row]) -> None:
        """Show the accelerator, and a row for each op, served or missing."""
        self._device, self._rows, self._reminders = device, dict(rows), 0

    def waiting(self, builder: str, seconds: float) -> None:
        """Show that the op is being loaded for so long; an empty builder: the accelerator is being selected."""
        if seconds >= _REMINDER_SECONDS * (self._reminders + 1):
            self._reminders += 1
            self._print(f"{builder or SELECTING}: {seconds:.0f} s so far")

    def tried(self, row: Row) -> None:
        """Show an op that was loaded (and run, if requested), or failed."""
        self._reminders = 0
        self._print(self._line(row))

    def stop(self) -> None:
        """Show the remaining rows; called once."""
        for row in self._rows.values():
            if row.state == MISSING:
                self._print(self._line(row))

    def _line(self, row: Row) -> str:
        return _line(row, _width(self._rows.values()), self._device)

    def _print(self, line: str) -> None:
        if not self._quiet:
            print(line, flush=True)


@contextlib.contextmanager
def progress(action: str, quiet: bool) -> Iterator[Display]:
    """Yield the display for standard output: none if `quiet`, a live table on a terminal, lines elsewhere."""
    console = Console(highlight=False)
    live = console.is_terminal and not quiet
    display = _LiveTable(console, action) if live else Display(quiet)
    try:
        yield display
    finally:
        display.stop()


class _LiveTable(Display):
    """A table whose rows change while ops are tried."""

    def __init__(self, console: Console, action: str) -> None:
        super().__init__()
        self._console = console
        self._verb = {"build": "loading", "test": "testing"}[action]
        self._current, self._began = "", time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)
        self._live.start()

    def waiting(self, builder: str, seconds: float) -> None:
        self._current, self._began = builder, time.monotonic() - seconds

    def tried(self, row: Row) -> None:
        self._rows[row.builder] = row
        self._current = ""

    def stop(self) -> None:
        self._live.stop()
        _print_missing(self._console, self._device, self._rows.values())

    def _render(self) -> RenderableType:
        # Called by the thread of `Live` too: rows are replaced, never changed.
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if not self._device:
            return Text(f"{SELECTING}: {seconds}")
        rows = []
        for row in list(self._rows.values()):
            if row.builder == self._current:
                row = replace(row, state=f"{self._verb} {seconds}", reason="")
            elif row.state == SERVED:
                row = replace(row, state="waiting", reason="")
            rows.append(row)
        return _table(self._device, rows)


def show(device: str, rows: Sequence[Row]) -> None:
    """Print rows that do not change."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(_table(device, rows))
        _print_missing(console, device, rows)
    else:
        for row in rows:
            print(_line(row, _width(rows), device))


_STYLES = {"served": "green", "ok": "green", "failed": "bold red", "waiting": "dim"}


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
