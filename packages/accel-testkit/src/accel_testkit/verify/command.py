# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel verify --quick`: check this machine's device in minutes, and write a report to act on or to send."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired

from rich.console import Console

from accel_core import processes
from accel_core.errors import DOCUMENTATION, InvalidInput, NoAccelerator
from accel_core.simulated import DEVICE, RUNTIME
from accel_testkit.suite.launch import LIMIT
from accel_testkit.verify import page
from accel_testkit.verify.facts import distributions
from accel_testkit.verify.report import DONE, Privacy, Report, StepRow, kept
from accel_testkit.verify.steps import STEPS, not_run

#: Seconds for the doctor's answer at the start; and between two lines where there is no terminal.
_DOCTOR, _BETWEEN = 120, 60.0
_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = f"Check the accelerator of this machine: {DOCUMENTATION}/verify.md"
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="about 3 minutes (default)")
    mode.add_argument("--full", action="store_true", help="about 20 minutes: everything")
    parser.add_argument(
        "--accel", metavar="KEY", default="", help="the vendor to check (default: what a run would use)"
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("accel-verify"),
        help="for report.json, report.html and report.txt; an interrupted run continues (default: ./accel-verify)",
    )  # fmt: skip
    parser.add_argument(
        "--step",
        action="append",
        choices=[step.name for step in STEPS],
        help="only this step, again; may be repeated",
    )
    parser.add_argument(
        "--keep-private",
        action="store_true",
        help="keep host and user names, paths, addresses and IDs in the report",
    )


def run(args: argparse.Namespace) -> int:
    """Verify; returns 0 if every step that ran passed, 1 if not, 130 after Ctrl-C."""
    key, simulated = args.accel or _chosen(), RUNTIME.get() or Path(DEVICE.get()).stem
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    versions = {"python": platform.python_version(), **distributions()}
    made = Report(key, "full" if args.full else "quick", simulated, now, versions)
    wanted = args.step or [step.name for step in STEPS]
    with _writing(made, args.out):
        status = _report(made, args.out, wanted, again=args.step or [], private=args.keep_private)
    return status or int(made.worst is not None)


@contextmanager
def _writing(made: Report, folder: Path) -> Iterator[None]:
    """Print the report and raise InvalidInput if it cannot be written to the folder."""
    try:
        yield
    except OSError as error:
        sys.stdout.write(made.text())
        raise InvalidInput(
            f"the report cannot be written to {folder}: {type(error).__name__}: {error}",
            do="choose another one: accel verify --out FOLDER",
        ) from error


def _report(made: Report, folder: Path, wanted: list[str], again: list[str], private: bool) -> int:
    """Run the steps and write the report; returns 130 if the user interrupted it, else 0."""
    folder.mkdir(parents=True, exist_ok=True)
    file, status = folder / "report.json", 0
    former = _former(file, made, again)
    made.made = former.made if former else made.made
    privacy = Privacy(folder)
    try:
        for row in _rows(made, former, wanted, folder / "steps"):
            made.rows.append(row if private else privacy.row(row))
            made.write(file)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    text = made.text()
    made.write(file)
    (folder / "report.html").write_text(page.html(made), encoding="utf-8")
    (folder / "report.txt").write_text(text, encoding="utf-8")
    written = f"written: {folder / 'report.html'}, report.json, report.txt. Nothing was sent anywhere.\n"
    resume = "interrupted: the same command continues with the step that was cut off\n" if status else ""
    sys.stdout.write(f"{text}\n{written}{resume}")
    return status


def _former(file: Path, made: Report, again: list[str]) -> Report | None:
    """Return an earlier report of the same device and software, whose steps need not run again."""
    former = kept(file)
    if former is None or not former.same_subject(made):
        return None
    whole = len(former.rows) == len(STEPS) and not again
    former.rows = [] if whole else [row for row in former.rows if row.step not in again]
    return former


def _rows(made: Report, former: Report | None, wanted: list[str], folder: Path) -> Iterator[StepRow]:
    """Yield the row of each step, of an earlier run or of a new one."""
    done = {row.step: row for row in former.rows if row.state in DONE} if former else {}
    devices = 0
    with _progress() as show:
        for step in STEPS:
            row = done.get(step.name)
            if row is None and step.name not in wanted:
                row = not_run(step, "not asked for")
            elif row is None and step.devices > devices:
                row = not_run(step, f"{devices} devices are here, {step.devices} needed")
            elif row is None:
                show(step.title, "")
                tick = partial(show, step.title)
                row = step.run(made.accelerator, made.mode, folder / step.name, LIMIT, tick)
            if step.name == "machine":
                devices = _devices(row)
            yield row


def _devices(machine: StepRow) -> int:
    """Return the number of devices; a large one where the machine does not say, so that nothing is left out."""
    counts = [row["value"] for row in machine.table if row.get("fact") == "devices"]
    return int(counts[0]) if counts and counts[0].isdigit() else sys.maxsize


@contextmanager
def _progress() -> Iterator[Callable[[str, str], None]]:
    """Yield a function that shows a step's title and how far it is.

    On a terminal one line, elsewhere a line at the start of each step and each minute.
    """
    console, printed = Console(stderr=True, highlight=False), 0.0
    with console.status("") if console.is_terminal else nullcontext() as status:

        def show(title: str, far: str) -> None:
            nonlocal printed
            if status:
                status.update(f"{title} {far}")
            elif not far or time.monotonic() > printed + _BETWEEN:
                printed = time.monotonic()
                console.print(f"{title} {far or '…'}")

        yield show


def _chosen() -> str:
    """Return the key of the accelerator that a run would use. Raises NoAccelerator."""
    command = (*processes.run_module("accel_core.cli"), "doctor", "--json")
    reason = ""
    try:
        found = json.loads(processes.run(command, _DOCTOR).stdout)
        key, reason = str(found["chosen"] or ""), str(found["error"])
    except (TimeoutExpired, ValueError, KeyError) as error:
        key, reason = "", f"accel doctor: {type(error).__name__}"
    if not key:
        raise NoAccelerator(
            f"there is no accelerator to verify: {(reason.strip().splitlines() or ['no accelerator'])[0]}",
            do="run `accel doctor` and follow its advice, or name the vendor: accel verify --accel KEY",
        )
    return key.partition(" ")[0]
