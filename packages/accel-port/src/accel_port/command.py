# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel port src train.py`: turn programs that were written for CUDA into programs for every accelerator."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from accel_port import files, report
from accel_port.errors import PortError
from accel_port.project import FileResult, port_files

LEFT = 1
FAILED = 2
_TARGETS = ("deepspeed", "accel", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    paths = "files, or folders with Python files and notebooks"
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=paths)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="change nothing; exit status 1 if a use is left")
    mode.add_argument("--diff", action="store_true", help="change nothing; print what would change")
    mode.add_argument("--write", action="store_true", help="write all changed files, or none")
    record = "record the uses of now for --baseline"
    mode.add_argument("--write-baseline", type=Path, metavar="FILE", help=record)
    target = "the interface to write: deepspeed.accelerator (default), accel_core, or torch.accelerator"
    parser.add_argument("--target", choices=_TARGETS, default="deepspeed", help=target)
    report = "write a report: FILE.md, FILE.json or FILE.sarif"
    parser.add_argument("--report", type=Path, metavar="FILE", help=report)
    baseline = "with --check: count only what FILE does not have"
    parser.add_argument("--baseline", type=Path, metavar="FILE", help=baseline)
    force = "with --write: although git has changes of these files"
    parser.add_argument("--force", action="store_true", help=force)
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--quiet", action="store_true", help="print the last line only")


def run(args: argparse.Namespace) -> int:
    """Port; returns the exit status: 1 with --check if something is left, 2 if a file is not ported."""
    try:
        return _run(args)
    except (PortError, OSError) as error:
        prefix = "" if isinstance(error, PortError) else f"accel port: {error.filename}: {error.strerror}"
        sys.stderr.write(f"{prefix or error}\n")
        return FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="accel port", description=__doc__)
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(args: argparse.Namespace) -> int:
    if args.report is not None and args.report.suffix not in report.FORMATS:
        report.write_report(args.report, [])
    found = files.found_in(args.paths)
    if args.write and not args.force:
        files.refuse_dirty(args.paths)
    results = port_files(found, args.target, args.jobs, _progress(args.quiet))
    if args.report is not None:
        report.write_report(args.report, results)
    if args.write_baseline is not None:
        report.write_baseline(args.write_baseline, results)
    if args.diff:
        sys.stdout.write("".join(result.diff() for result in results if result.changed))
    if args.write:
        _write(results, args.paths)
    out = sys.stderr if args.diff else sys.stdout
    out.write((report.totals(results) + "\n") if args.quiet else report.summary(results))
    return _status(args, results)


def _status(args: argparse.Namespace, results: list[FileResult]) -> int:
    if any(result.failure for result in results):
        return FAILED
    if not args.check:
        return 0
    rows = report.rows_of(results)
    if args.baseline is not None:
        rows = report.without_baseline(args.baseline, results)
        sys.stdout.write(f"{len(rows)} of them are not in {args.baseline}\n")
        for row in rows:
            sys.stdout.write(f"  {row.path}:{row.line}: {row.code[:80]} [{row.finding.rule}]\n")
    return LEFT if rows else 0


def _write(results: list[FileResult], paths: list[Path]) -> None:
    folders = [path if path.is_dir() else path.parent for path in paths]
    root = Path(os.path.commonpath([folder.resolve() for folder in folders]))
    changes = {r.path: (r.before, r.after) for r in results if r.changed}
    files.write_all(changes, root)


def _progress(quiet: bool) -> Callable[[int, int], None]:
    """Return what shows how many files are done; it does so on a terminal only."""
    if quiet or not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        if done == total or done % 10 == 0:
            width = 30 * done // max(total, 1)
            sys.stderr.write(f"\r[{'#' * width}{'.' * (30 - width)}] {done}/{total} files")
            sys.stderr.write("\r\033[K" if done == total else "")
            sys.stderr.flush()

    return show
