# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel bench`: measure the host's part of DeepSpeed on this machine, in about five minutes."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from accel_core.errors import DOCUMENTATION
from accel_core.isolated import run_module
from accel_core.reports import one_line
from accel_testkit.bench import table
from accel_testkit.verify import report
from accel_testkit.verify.command import (
    Estimate,
    new_report,
    print_differences,
    progress,
    run_step,
    writing,
)
from accel_testkit.verify.facts import processor
from accel_testkit.verify.report import CRASHED, TIMED_OUT, InvalidReport, Privacy, Report, Row
from accel_testkit.verify.steps import Step, from_answer

#: Name of a part: its title and the seconds that it takes, without compiling DeepSpeed's op.
PARTS = {
    "optimizers": ("CPU Adam", 40),
    "offload": ("ZeRO-Offload", 60),
    "collectives": ("all_reduce between two ranks", 40),
    "files": ("file I/O", 60),
}
#: Seconds without a new measurement after which a part is ended: long enough for a compiler.
_LIMIT = 1800
_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Measure CPU Adam, ZeRO-Offload, collectives and file I/O on this machine, beside stock DeepSpeed and the "
        f"machine's limits: {DOCUMENTATION}/bench.md"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument(
        "--compile", action="store_true", help="compile DeepSpeed's own ops, to compare with them (minutes)"
    )
    parser.add_argument(
        "--disk", metavar="FOLDER", type=Path, default=Path(tempfile.gettempdir()),
        help="a folder on the disk to measure, with 1 GiB free (default: that of temporary files)",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("accel-bench"),
        help="for bench.json, bench.md and bench.svg (default: ./accel-bench)",
    )  # fmt: skip
    parser.add_argument("--show", metavar="BENCH.json", type=Path, help="print the table of a file, and stop")
    parser.add_argument(
        "--compare", metavar=("OLD.json", "NEW.json"), nargs=2, type=Path,
        help="print how two files differ, and stop",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Measure; returns 0, 1 if a part failed, 130 after Ctrl-C. Raises InvalidReport."""
    if args.show:
        _print(_read(args.show).rows)
        return 0
    if args.compare:
        return print_differences(*map(_read, args.compare))
    return _bench(new_report("cpu", "bench"), args)


def _read(path: Path) -> Report:
    found = report.read(path)
    rows = [measured for row in found.rows for measured in row.table]
    if found.mode != "bench" or not all(map(table.is_row, rows)):
        raise InvalidReport(
            what=f"{path} cannot be shown",
            found=f"mode {found.mode!r}" if found.mode != "bench" else "rows that are no measurements",
            expected="a bench.json of `accel bench`",
            do="run `accel bench` again; `accel verify --show` shows the reports of `accel verify`",
        )
    return found


def _bench(made: Report, args: argparse.Namespace) -> int:
    failure = f"the figures cannot be written to {args.out}"
    with writing(failure, "accel bench"):
        args.out.mkdir(parents=True, exist_ok=True)
    privacy, status = Privacy(args.out, args.disk), 0
    here = circumstances(made)
    with tempfile.TemporaryDirectory(prefix="accel-bench-") as folder:
        try:
            for row in _rows(made, args, Path(folder)):
                made.rows.append(privacy.row(row))
        except KeyboardInterrupt:
            status = _INTERRUPTED
    rows = [measured for row in made.rows for measured in row.table]
    with writing(failure, "accel bench"):
        made.write(args.out / "bench.json")
        (args.out / "bench.md").write_text(table.markdown("accel bench", rows, here), encoding="utf-8")
        (args.out / "bench.svg").write_text(table.picture(rows), encoding="utf-8")
    _print(made.rows)
    sys.stdout.write(f"written: {args.out / 'bench.md'}, bench.json, bench.svg. Nothing was sent anywhere.\n")
    return status or int(made.worst is not None)


def _rows(made: Report, args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    left = {name: PARTS[name][1] for name in args.part or PARTS}
    extra = ("--compile",) if args.compile else ()
    estimate = Estimate()
    with progress() as show:
        for name in list(left):
            title, expected = PARTS[name]
            command = (*run_module("accel_testkit.bench"), name, str(args.disk.resolve()), *extra)
            step = Step(name, title, lambda *_, own=command: own, (expected, expected), from_answer)
            row = run_step(step, made, folder / name, show, estimate, sum(left.values()), _LIMIT)
            estimate.add(left.pop(name), row.seconds)
            yield row


def _print(rows: Sequence[Row]) -> None:
    shown = Table(title="milliseconds, less is faster; x: how many times as fast ours is", box=None)
    for name in table.HEAD:
        shown.add_column(name, justify="left" if name in table.HEAD[:2] else "right")
    for row in rows:
        for measured in row.table:
            shown.add_row(*map(one_line, table.cells(measured).values()))
    console = Console(markup=False, highlight=False)
    console.width = max(console.width, 110)
    console.print(shown)
    for row in rows:
        for failure in row.failures:
            reason = failure["reason"].strip().splitlines() or [""]
            what = f"{row.title} {row.state}" if row.state in (CRASHED, TIMED_OUT) else row.title
            sys.stdout.write(one_line(f"{what}: {reason[-1]}")[:300] + "\n")


def circumstances(made: Report) -> dict[str, str]:
    """Return what a reader needs to judge the figures."""
    names = ("python", "torch", "deepspeed", "accel-core", "accel-cpu", "accel-ops")
    machine = f"{processor()}, {platform.system()}"
    versions = {name: made.versions.get(name, "not installed") for name in names}
    load = f"{os.getloadavg()[0]:.1f} processes" if hasattr(os, "getloadavg") else "unknown"
    return {"machine": machine, **versions, "date": made.made[:10], "load when it began": load}
