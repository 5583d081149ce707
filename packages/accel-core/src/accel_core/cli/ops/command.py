# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops test FusedAdamBuilder`: list, build or test the ops of the accelerator that a run would use.

`build` and `test` load the ops in a child process, and print a line for each as it is tried. After a crash or a
timeout, a new child continues with the remaining ops.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, replace

from rich.console import Console
from rich.status import Status
from rich.text import Text

from accel_core.api import get_accelerator
from accel_core.cli.main import seconds, working
from accel_core.cli.ops.listing import FAILED, MISSING, SERVED, Row, listed
from accel_core.errors import AcceleratorBroken, InvalidInput
from accel_core.op_builder.names import UPSTREAM
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
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return _WRONG_USAGE


def _list(args: argparse.Namespace) -> int:
    with working(SELECTING, args.json):
        accelerator = get_accelerator()
        rows = listed(accelerator, args.builders)
    if args.json:
        _print_json(accelerator.device_name(), rows)
    else:
        _show(_console(), accelerator.device_name(), rows)
    return 0


def _try(args: argparse.Namespace) -> int:
    """Load the ops in a child process, and run them for `test`. This process does not import torch."""
    console = _console(quiet=args.json)
    with console.status(SELECTING) as status:
        device, rows = attempt(args.builders, args.action, args.timeout, console, status)
    if args.json:
        _print_json(device, rows)
    bad = (FAILED, MISSING) if args.builders else (FAILED,)
    return int(any(row.state in bad for row in rows))


def _print_json(device: str, rows: Iterable[Row]) -> None:
    print(json.dumps({"accelerator": device, "ops": [asdict(row) for row in rows]}, indent=2))


#: Runs `listing.main` in the child.
_CHILD = ("-c", "from accel_core.cli.ops.listing import main; main()")
#: Time limit of the selection, which imports torch and a runtime.
SELECTION_SECONDS = 600.0
SELECTING = "importing torch and selecting the accelerator"


def attempt(
    builders: Sequence[str], action: str, seconds: float, console: Console, status: Status
) -> tuple[str, list[Row]]:
    """Try the builders (default: all); return the accelerator's name and a row for each.

    action:  `build` loads each op, `test` runs it as well.
    seconds: time limit of each op.
    status:  shows the step that is running, below the lines of the ops on a terminal.

    Raises InvalidInput, the error of a failed selection, and AcceleratorBroken if the selection crashes or exceeds
    its time limit.
    """
    device, rows, left = "", dict[str, Row](), list(builders)
    while not rows or left:
        with closing(Worker(*_CHILD)) as worker:
            status.update(SELECTING)
            reply = worker.ask(SELECTION_SECONDS, "select", *left)
            if reply.failure:
                raise _broken(_ending(reply))
            if "error" in reply.answer:
                raise reply.answer["error"]
            if not rows:
                device, rows = reply.answer["device"], {row.builder: row for row in reply.answer["rows"]}
                left = [row.builder for row in rows.values() if row.state == SERVED]
            while left and not reply.failure:
                builder = left.pop(0)
                status.update(f"loading {builder}")
                reply = worker.ask(seconds, action, builder)
                row = Row(builder, "", FAILED, _ending(reply)) if reply.failure else reply.answer["row"]
                rows[builder] = replace(row, op=rows[builder].op)
                _show(console, device, [rows[builder]])
    _show(console, device, [row for row in rows.values() if row.state == MISSING])
    return device, list(rows.values())


def _ending(reply: Reply) -> str:
    return ": ".join(filter(None, [reply.failure, reply.last_line]))


def _broken(found: str) -> AcceleratorBroken:
    return AcceleratorBroken(
        f"the ops cannot be tried: no accelerator can be selected: {found}",
        do="`accel doctor` shows every accelerator and its state",
    )


_WIDTH = max(map(len, UPSTREAM))
_STYLES = {"served": "green", "ok": "green", "failed": "bold red"}


def _console(quiet: bool = False) -> Console:
    return Console(highlight=False, soft_wrap=True, quiet=quiet)


def _show(console: Console, device: str, rows: Iterable[Row]) -> None:
    """Print a line for each row."""
    for row in rows:
        seconds = "" if row.seconds is None else f"{row.seconds:.2f} s"
        # The reason of a missing op begins with what the row already shows.
        reason = row.reason.removeprefix(f"{row.builder} on {device}: ")
        line = f"{row.builder:<{_WIDTH}}  {row.state:<7}  {seconds:>8}  {reason}".rstrip()
        console.print(Text(line, _STYLES.get(row.state, "")))
