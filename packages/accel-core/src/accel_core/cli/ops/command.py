# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops list|build|test|profile`: the ops of the accelerator that a run would use, and where their time goes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict

from accel_core.cli.ops import profile
from accel_core.cli.ops.listing import FAILED, MISSING, Row, listed, with_packages
from accel_core.errors import UnknownBuilder

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
        _add_builders(actions.add_parser(name, help=summary, description=summary))
    summary = "run a script that trains with DeepSpeed, and show where its iterations spend their time"
    profile.add_arguments(actions.add_parser("profile", help=summary, description=summary))


def _add_builders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("builders", nargs="*", metavar="BUILDER", help="FusedAdamBuilder …; default: all")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--timeout",
        type=float,
        default=SECONDS,
        metavar="SECONDS",
        help=f"time limit of each op (default {SECONDS:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Print a row for each op; returns the exit status.

    0: success; 1: an op failed, or one that was named for build or test is missing; 2: no such builder.
    """
    if args.action == "profile":
        return profile.run(args)
    try:
        return _list(args) if args.action == "list" else _try(args)
    except UnknownBuilder as error:
        print(error, file=sys.stderr)
        return _WRONG_USAGE


def _list(args: argparse.Namespace) -> int:
    from accel_core.cli.ops import attempts
    from accel_core.cli.status import working

    with working(attempts.SELECTING, args.json):
        from accel_core.api import get_accelerator

        accelerator = get_accelerator()
        rows = listed(accelerator, args.builders)
    device = accelerator.device_name()
    if args.json:
        _print_json(device, rows)
    else:
        attempts.show(device, [with_packages(row) if row.builder in args.builders else row for row in rows])
    return 0


def _try(args: argparse.Namespace) -> int:
    """Load the ops in a child process, and run them for `test`. This process does not import torch."""
    from accel_core.cli.ops import attempts

    with attempts.progress(args.action, quiet=args.json) as display:
        device, rows = attempts.attempt(args.builders, args.action, args.timeout, display)
    if args.json:
        _print_json(device, rows.values())
    bad = (FAILED, MISSING) if args.builders else (FAILED,)
    return int(any(row.state in bad for row in rows.values()))


def _print_json(device: str, rows: Iterable[Row]) -> None:
    print(json.dumps({"accelerator": device, "ops": [asdict(row) for row in rows]}, indent=2))
