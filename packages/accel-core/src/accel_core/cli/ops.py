# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops list|build|test`: the ops of the accelerator that a run would use; do they load, do they run?"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

#: A compiler may need its time.
SECONDS = 600.0
_STYLES = {"served": "green", "ok": "green", "failed": "bold red"}


@dataclass(frozen=True)
class Row:
    """One op: its builder, upstream's name, what became of it (served, missing, ok, failed), and why."""

    builder: str
    op: str
    state: str
    reason: str
    seconds: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, and the form of output."""
    parser.add_argument(
        "action",
        choices=("list", "build", "test"),
        help="list: start nothing; build: load each op, which compiles what has to be; test: run each as well",
    )
    parser.add_argument(
        "builders", nargs="*", type=_builder, metavar="BUILDER", help="FusedAdamBuilder …; default: all"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--timeout",
        type=float,
        default=SECONDS,
        metavar="SECONDS",
        help=f"time an op has (default {SECONDS:g})",
    )


def _builder(name: str) -> str:
    from accel_core.op_builder.names import UPSTREAM

    if name not in UPSTREAM:
        raise argparse.ArgumentTypeError(f"no builder {name!r}; there are {', '.join(UPSTREAM)}")
    return name


def run(args: argparse.Namespace) -> int:
    """Print one row an op; 0, or 1 when one that is served does not load or run."""
    from accel_core.api import get_accelerator

    accelerator = get_accelerator()
    rows = [row for row in listed(accelerator) if row.builder in args.builders or not args.builders]
    if args.action != "list":
        rows = [_tried(row, args.action == "test", args.timeout) for row in rows]
    if args.json:
        print(
            json.dumps(
                {"accelerator": accelerator.device_name(), "ops": [asdict(row) for row in rows]}, indent=2
            )
        )
    else:
        _show(accelerator.device_name(), rows)
    return int(any(row.state == "failed" for row in rows))


def listed(accelerator: object) -> list[Row]:
    """Every op that DeepSpeed knows, as the accelerator answers for it. Compiles nothing."""
    from accel_core.op_builder.names import UPSTREAM

    rows = []
    for name in UPSTREAM:
        builder = accelerator.create_op_builder(name)  # type: ignore[attr-defined]
        served = bool(builder is not None and builder.is_compatible())
        # DeepSpeed's own builders, where an accelerator of its own serves, give no reason.
        reason = getattr(builder, "reason", "") or getattr(builder, "error_log", None) or ""
        rows.append(Row(name, getattr(builder, "name", ""), "served" if served else "missing", reason))
    return rows


def _tried(row: Row, run_it: bool, seconds: float) -> Row:
    if row.state != "served":
        return row
    from accel_core.cli import child

    reply = child.ask("accel_core.cli.try_op", row.builder, *(["--run"] if run_it else []), seconds=seconds)
    if reply.failure:
        last = reply.output.strip().splitlines()[-1:] or [""]
        return Row(row.builder, row.op, "failed", f"{reply.failure} {last[0]}".strip())
    answer = reply.answer
    state = "ok" if answer["ok"] else "failed"
    return Row(row.builder, row.op, state, answer["reason"], answer.get("seconds"))


def _show(device: str, rows: list[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("builder", "state", "loaded in", "why", title=f"ops of {device}", box=box.SIMPLE)
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row.state == "missing":
            missing.setdefault(
                row.reason.partition(f"{row.builder} on {device}: ")[2] or row.reason, []
            ).append(row.builder)
            continue
        seconds = "" if row.seconds is None else f"{row.seconds:.2f} s"
        table.add_row(row.builder, row.state, seconds, row.reason, style=_STYLES[row.state])
    console.print(table)
    for reason, builders in missing.items():
        console.print(f"[bold]missing[/bold] {', '.join(builders)}\n        {reason}", soft_wrap=True)
