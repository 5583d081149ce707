# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The doctor's report on a terminal."""

from __future__ import annotations

from textwrap import fill

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accel_core.cli.doctor.report import Remark, Report
from accel_core.selection.finding import State

#: Narrower than this, package and devices share a column with others.
_WIDE = 120
_STYLES = {
    State.CHOSEN: "bold green",
    State.DEFERRED: "bold green",
    State.PRESENT: "green",
    State.BROKEN: "bold red",
    State.BLOCKED: "yellow",
    State.ABSENT: "dim",
    State.NOT_INSTALLED: "dim",
}


def show(report: Report) -> None:
    """Print versions, candidates, tracebacks, problems, notes and the verdict."""
    console = Console(highlight=False, soft_wrap=False)
    console.print(_versions(report))
    console.print(_candidates(report, console.width >= _WIDE))
    for finding in report.facts.explanation.findings:
        if finding.state is State.BROKEN and finding.error:
            _print_traceback(console, finding.label, finding.error)
    if report.facts.torch.error:
        _print_traceback(console, "import torch", report.facts.torch.error)
    _print_remarks(console, "Problems", "bold red", report.problems)
    _print_remarks(console, "Notes", "bold", report.notes)
    _print_verdict(console, report)


def _versions(report: Report) -> Table:
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
    ):
        grid.add_row(Text(name, "bold"), Text(value))
    return grid


def _candidates(report: Report, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in (
        ("accelerator", "state", "devices", "package", "why") if wide else ("accelerator", "state", "why")
    ):
        table.add_column(title, no_wrap=title != "why", overflow="fold")
    for finding in report.facts.explanation.findings:
        style = _STYLES.get(finding.state, "")
        state = Text(finding.state.value, style)
        package = f"{finding.package} {finding.version}" if finding.version else ""
        devices = "" if finding.devices is None else str(finding.devices)
        if wide:
            table.add_row(Text(finding.label), state, devices, package, Text(finding.reason))
        else:
            if devices:
                state.append(f"\n{devices} device{'' if devices == '1' else 's'}")
            why = f"{package}: {finding.reason}" if package else finding.reason
            table.add_row(Text(finding.label), state, Text(why))
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
        console.print(Text(f"  do: {remark.advice}", "bold"), soft_wrap=True)  # in one piece, to be copied
    console.print()


def _print_verdict(console: Console, report: Report) -> None:
    explanation = report.facts.explanation
    count = len(report.problems)
    health = "Healthy" if not count else "1 problem" if count == 1 else f"{count} problems"
    if not report.facts.torch.imports:
        choice = "No run can start, since torch cannot be imported."
        if explanation.chosen:
            choice += f" Once it can, a run would use {explanation.chosen} ({explanation.how})."
    elif explanation.chosen:
        choice = f"A fresh process with this environment would use {explanation.chosen} ({explanation.how})."
    else:
        choice = "A fresh process with this environment would get this error:"
    console.print(
        Text(f"{health}. ", "bold green" if report.healthy else "bold red").append(choice, "default")
    )
    if explanation.error and report.facts.torch.imports:
        console.print(Text(explanation.error), soft_wrap=True)
