# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel doctor`: the state of every accelerator, the one that a run would use, and problems."""

from __future__ import annotations

import argparse
import json

from accel_core.cli.doctor import advice, survey
from accel_core.cli.doctor.children import SLOW_STEP_FACTOR
from accel_core.cli.doctor.report import Report
from accel_core.cli.status import working

SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the output format and the time limit of runtimes."""
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON (docs/doctor.md has the schema)"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=SECONDS,
        metavar="SECONDS",
        help=f"time each runtime has to answer (default {SECONDS:g}; `import torch` has {SLOW_STEP_FACTOR} times that)",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def run(args: argparse.Namespace) -> int:
    """Examine the environment and print the report; returns 0 if healthy, 1 if a problem was found."""
    with working("importing torch, and asking the runtime of each accelerator"):
        facts = survey.examine(args.timeout)
    report = Report(facts, tuple(advice.problems(facts)), tuple(advice.notes(facts)))
    if args.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        from accel_core.cli.doctor import render

        render.show(report)
    return 0 if report.healthy else 1
