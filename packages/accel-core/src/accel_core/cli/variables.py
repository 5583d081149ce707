# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel env`: list the environment variables and their present values."""

from __future__ import annotations

import argparse
import json

from accel_core.env import VARIABLES, Variable
from accel_core.processes import stdout_to_stderr
from accel_core.selection.candidates import discover


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the output format."""
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def run(args: argparse.Namespace) -> int:
    """Print the variables; returns 0."""
    if args.json:
        print(json.dumps([_entry(variable) for variable in _installed()], indent=2))
    else:
        _print_table()
    return 0


def _installed() -> list[Variable]:
    """Return core's variables and those of the installed vendor packages."""
    with stdout_to_stderr():  # a record may print
        vendors = discover().vendors
    return [*VARIABLES, *(variable for vendor in vendors for variable in vendor.variables)]


def _entry(variable: Variable) -> dict[str, str | bool | None]:
    return {
        "name": variable.name,
        "set": variable.raw() is not None,
        "value": variable.shown(),
        "default": variable.default,
        "sentence": variable.sentence,
    }


def _print_table() -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("variable", "value", "meaning"):
        table.add_column(title, overflow="fold")
    for variable in _installed():
        raw = variable.shown()
        value = (
            Text(f"default: {variable.default or 'unset'}", "dim")
            if raw is None
            else Text(f"set: {raw!r}", "bold")
        )
        table.add_row(Text(variable.name), value, Text(variable.sentence))
    Console().print(table)
