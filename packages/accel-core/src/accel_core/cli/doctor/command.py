# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel doctor`: show every accelerator, which one a run would use, and why.

docs/doctor.md has the schema of `--json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accel_core.cli.doctor import advice
from accel_core.cli.doctor.advice import Remark
from accel_core.cli.doctor.examine import SLOW_STEP_FACTOR, Facts, Outcome, examine
from accel_core.cli.main import seconds, working
from accel_core.errors import DOCUMENTATION
from accel_core.selection.candidates import State
from accel_core.upstream.patches import Status

#: Increased when a field changes its meaning or is removed, not when one is added.
SCHEMA = 1


@dataclass(frozen=True)
class DoctorReport:
    """The facts, with the problems (exit status 1) and notes derived from them."""

    facts: Facts
    problems: tuple[Remark, ...]
    notes: tuple[Remark, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        facts = self.facts
        return {
            "schema": SCHEMA,
            "healthy": not self.problems,
            "python": facts.python,
            "accel_core": facts.core,
            "torch": asdict(facts.torch),
            "deepspeed": asdict(facts.deepspeed),
            "bridge": asdict(facts.bridge),
            "speedups": [asdict(status) for status in facts.speedups],
            **facts.explanation.to_dict(),
            "run": {name: asdict(outcome) for name, outcome in facts.outcomes.items()},
            "unmet": [asdict(lack) for lack in facts.unmet],
            "problems": [asdict(remark) for remark in self.problems],
            "notes": [asdict(remark) for remark in self.notes],
        }


SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the output format and the time limit of runtimes."""
    parser.add_argument(
        "--json", action="store_true", help=f"print the report as JSON; its schema: {DOCUMENTATION}/doctor.md"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=SECONDS,
        metavar="SECONDS",
        help=f"time each runtime has to answer (default {SECONDS:g}; `import torch` has {SLOW_STEP_FACTOR} times that)",
    )


def run(args: argparse.Namespace) -> int:
    """Examine the environment and print the report; returns 0 if healthy, 1 if a problem was found."""
    with working("importing torch, and asking the runtime of each accelerator"):
        facts = examine(args.timeout)
    report = DoctorReport(facts, tuple(advice.problems(facts)), tuple(advice.notes(facts)))
    if args.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        show(report)
    return 1 if report.problems else 0


#: Narrower than this, devices share a column with the state.
_WIDE = 120
#: Width without a terminal: nothing is wrapped.
_UNLIMITED = 100_000
_BLANKS = re.compile(r"[ ]+((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)
_STYLES = {
    State.CHOSEN: "bold green",
    State.DEFERRED: "bold green",
    State.PRESENT: "green",
    State.BROKEN: "bold red",
    State.BLOCKED: "yellow",
    State.ABSENT: "dim",
    State.NOT_INSTALLED: "dim",
}


def show(report: DoctorReport) -> None:
    """Print the decision, versions, candidates, tracebacks, problems and notes."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED  # file or pipe: one line per row, for grep
    with console.capture() as printed:
        _print(console, report)
    # rich fills every line of a table with blanks.
    print(_BLANKS.sub(r"\1", printed.get()), end="")


def _print(console: Console, report: DoctorReport) -> None:
    _print_decision(console, report)
    console.print(_versions(report))
    blank = [""] if console.width == _UNLIMITED else []  # the bordered table has its own blank lines
    console.print(*blank, _candidates(report, console.width), *blank, sep="\n")
    for candidate in report.facts.explanation.candidates:
        if candidate.state is State.BROKEN and candidate.error:
            _print_traceback(console, candidate.label, candidate.error)
    if report.facts.torch.error:
        _print_traceback(console, "import torch", report.facts.torch.error)
    # The decision has the whole error of a failed selection, its advice included.
    shown = tuple(problem for problem in report.problems if problem.code != "selection")
    _print_remarks(console, "Problems", "bold red", shown)
    _print_remarks(console, "Notes", "bold", report.notes)


def _versions(report: DoctorReport) -> Table:
    facts = report.facts
    torch = facts.torch.version or "not installed"
    if facts.torch.version and not facts.torch.imports:
        torch += ", fails to import"
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in (
        ("accel-core", facts.core),
        ("Python", f"{facts.python['version']}  {facts.python['executable']}"),
        ("torch", torch),
        ("deepspeed", facts.deepspeed.version or "not installed"),
        ("bridge", f"{'on' if facts.bridge.on else 'off'}: {facts.bridge.reason}"),
        *((kind, _replaced(facts.speedups, kind)) for kind in dict.fromkeys(s.kind for s in facts.speedups)),
    ):
        grid.add_row(Text(name, "bold"), Text(value))
    return grid


def _replaced(rows: Sequence[Status], kind: str) -> str:
    """Return the names of those that are on, then each other one with its reason."""
    on = ", ".join(status.name for status in rows if status.kind == kind and status.on) or "none"
    off = (f"{status.name} off: {status.reason}" for status in rows if status.kind == kind and not status.on)
    return "; ".join((f"on: {on}", *off))


def _candidates(report: DoctorReport, width: int) -> Table:
    wide = width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD if width < _UNLIMITED else None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("accelerator", "state", "devices", "why") if wide else ("accelerator", "state", "why"):
        table.add_column(title, no_wrap=title != "why", overflow="fold")
    for candidate in report.facts.explanation.candidates:
        state = Text(candidate.state.value, _STYLES.get(candidate.state, ""))
        package = f"{candidate.package} {candidate.version}" if candidate.version else ""
        devices = "" if candidate.devices is None else str(candidate.devices)
        named = package and (wide or candidate.state is not State.ABSENT)  # of no interest if it is absent
        why = Text(f"{package}: {candidate.reason}" if named else candidate.reason)
        if devices and not wide:
            state.append(f"\n{devices} device{'' if devices == '1' else 's'}")
        table.add_row(Text(candidate.label), state, *([devices] if wide else []), why)
    return table


def _print_traceback(console: Console, title: str, text: str) -> None:
    console.print(Text(f"{title}:", "bold red"))
    console.print(Text(text.rstrip() + "\n", "dim"), soft_wrap=True)


def _print_remarks(console: Console, title: str, style: str, remarks: tuple[Remark, ...]) -> None:
    if not remarks:
        return
    console.print(Text(title, style))
    for remark in remarks:
        found = fill(
            f"- {remark.subject}: {remark.found}",
            console.width,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        console.print(Text(found))
        console.print(Text(f"  do: {remark.advice}", "bold"), soft_wrap=True)  # unwrapped, to be copied
    console.print()


def _print_decision(console: Console, report: DoctorReport) -> None:
    explanation = report.facts.explanation
    count = len(report.problems)
    health = "Healthy" if not count else "1 problem" if count == 1 else f"{count} problems"
    text = Text(f"{health}. ", "bold red" if report.problems else "bold green")
    console.print(text.append(_choice(report), "default"))
    if explanation.error and report.facts.torch.imports:
        console.print(Text(explanation.error), soft_wrap=True)
    console.print()


def _choice(report: DoctorReport) -> str:
    facts, explanation = report.facts, report.facts.explanation
    chosen = f"{explanation.chosen} ({explanation.how})"
    if not facts.torch.imports:
        choice = "No run can start, since torch cannot be imported."
        return choice + (f" Once it can, a run would use {chosen}." if explanation.chosen else "")
    apart = facts.outcomes.get("deepspeed")
    if apart and apart != facts.outcomes["accel_core"] and facts.deepspeed.version:
        own = f"uses {_named(apart)}" if apart.accelerator else f"ends in {apart.error}"
        core = f"would give {chosen}" if explanation.chosen else "would raise this error:"
        return f"A program that imports deepspeed {own}. accel_core's own functions {core}"
    if facts.outcomes and facts.outcomes["accel_core"].error and explanation.chosen:
        ended = facts.outcomes["accel_core"].error
        return f"A fresh process ends with {ended}. Without that, a run would use {chosen}."
    if explanation.chosen:
        return f"A fresh process with this environment would use {chosen}."
    return "A fresh process with this environment would get this error:"


def _named(outcome: Outcome) -> str:
    module, _, name = outcome.accelerator.partition(":")
    whose = "DeepSpeed's own " if module.partition(".")[0] == "deepspeed" else ""
    return f"{whose}{name} ({module})"
