# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel zero profile train.py`: run a script, and show where its iterations spend their time."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from accel_core import env
from accel_core.errors import InvalidInput

#: The first iterations allocate memory.
SKIP = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action with its options, the script, and its arguments."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    summary = "run a script that trains with DeepSpeed, and show where its iterations spend their time"
    parser = actions.add_parser("profile", help=summary, description=summary)
    parser.add_argument(
        "--skip", type=int, default=SKIP, metavar="N", help=f"first iterations to leave out ({SKIP})"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object after the script's own output"
    )
    parser.add_argument("script", help="a script that trains with DeepSpeed")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> int:
    """Run the script in this process and print the table on local rank 0; returns the script's exit status.

    Raises InvalidInput if there are not more optimizer steps than `--skip` leaves out.
    """
    import torch  # noqa: F401  joins core to deepspeed, as in a program that imports torch first

    from accel_zero.profile import profiled

    with profiled() as profile:
        status = _run_script(args.script, args.arguments)
    if not env.is_local_rank_zero():
        return status
    if len(profile.iterations) <= max(args.skip, 0):
        if status:  # the script's own error is on stderr
            return status
        raise InvalidInput(
            f"there is nothing to show of {args.script}: {len(profile.iterations)} optimizer steps of a "
            "DeepSpeed engine",
            do="let the script train longer, or use --skip 0; it has to train with deepspeed.initialize",
        )
    parts = {name: 1e3 * seconds for name, seconds in profile.mean(max(args.skip, 0)).items()}
    counted = len(profile.iterations) - max(args.skip, 0)
    title = f"{Path(args.script).name}: mean of {counted} iterations"
    if args.json:
        sys.stdout.write(f"{json.dumps({'iterations': counted, 'milliseconds': parts})}\n")
    else:
        _show(title, parts)
    return status


def _run_script(script: str, arguments: list[str]) -> int:
    """Run it as `python script.py arguments` would; returns its exit status."""
    former, sys.argv = sys.argv, [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
            return 1
        return ended.code or 0
    finally:
        sys.argv = former
        del sys.path[0]
    return 0


def _show(title: str, parts: dict[str, float]) -> None:
    total = sum(parts.values())
    table = Table("part", box=box.SIMPLE_HEAD, title=title, title_justify="left", show_footer=True)
    table.columns[0].footer = "iteration"
    table.add_column("ms", justify="right", footer=f"{total:,.1f}")
    table.add_column("share", justify="right", footer="100 %")
    for name, milliseconds in parts.items():
        table.add_row(name, f"{milliseconds:,.1f}", f"{100 * milliseconds / total:.1f} %")
    Console(highlight=False).print(table)
