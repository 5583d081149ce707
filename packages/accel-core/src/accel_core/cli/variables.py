# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel env`: the environment variables of this project, from the table that the code uses."""

from __future__ import annotations

import argparse
import json

from accel_core.env import VARIABLES, Variable
from accel_core.selection.candidates import discover


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the output formats."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list")
    form.add_argument("--markdown", action="store_true", help="print docs/environment.md: no present values")


def run(args: argparse.Namespace) -> int:
    """Print the variables; returns 0."""
    if args.json:
        print(json.dumps([_entry(variable) for variable in _installed()], indent=2))
    elif args.markdown:
        print(markdown(), end="")
    else:
        _print_table()
    return 0


def _installed() -> list[Variable]:
    """Return core's variables and those of the installed vendor packages."""
    return [*VARIABLES, *(variable for vendor in discover().vendors for variable in vendor.variables)]


def _entry(variable: Variable) -> dict[str, str | bool | None]:
    return {
        "name": variable.name,
        "set": variable.raw() is not None,
        "value": variable.shown(),
        "default": variable.default,
        "sentence": variable.sentence,
    }


def markdown() -> str:
    """Return the page docs/environment.md."""
    rows = "\n".join(
        f"| `{v.name}` | {f'`{v.default}`' if v.default else ''} | {v.sentence} |" for v in VARIABLES
    )
    return (
        "# Environment variables\n\n"
        "Variables that accel-core, accel-ops and accel-launch read. Printed by `accel env --markdown`; change\n"
        "`accel_core/env.py`, not this page. `accel env` shows the present values, and the variables that installed\n"
        "vendor packages declare. Others are on the pages of what reads them:\n\n"
        "- the variables of a vendor's runtime, and of its package: [Hardware](vendors/README.md);\n"
        "- what `accel launch` sets for each rank: [Launching ranks](launch.md#variables);\n"
        "- `ACCEL_SIM_*`, of simulated devices: [Simulated devices](simulated-devices.md#use);\n"
        "- `ACCEL_NO_NATIVE` and `CXX`, read when packages are built:\n"
        "  [Host optimizers](host-optimizers.md#variables).\n\n"
        f"| variable | default | meaning |\n| --- | --- | --- |\n{rows}\n"
    )


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
