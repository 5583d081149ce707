# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: no script, nothing from the network, and every value escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from accel_core.reports import page, table
from accel_testkit.verify.report import CRASHED, FAILED, PASSED, TIMED_OUT, Report, StepRow

_MOST_FAILURES = 200


def html(report: Report) -> str:
    """Return the page: summary, the first failure and what to do, the steps, every failure, the tables."""
    on = f"simulated {report.simulated}" if report.simulated else report.accelerator
    title = f"accel verify: {on}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_sentence(report))}</p>",
        _first(report.worst),
        "<h2>Steps</h2>",
        _table(
            {"step": row.title, "result": row.state, "seconds": row.seconds, "found": row.found}
            for row in report.rows
        ),
        *(_failures(row) for row in report.rows if row.failures),
        *(f"<h2>{escape(row.title)}</h2>{_table(row.table)}" for row in report.rows if row.table),
    ]
    return page(title, parts)


def _sentence(report: Report) -> str:
    ran = [row for row in report.rows if row.state != "not run"]
    passed = sum(row.state == PASSED for row in ran)
    versions = ", ".join(
        f"{name} {report.versions[name]}"
        for name in ("python", "torch", "deepspeed", "accel-core")
        if report.versions.get(name)
    )
    simulated = " A simulated device shows wiring, contracts and numerics, not speed or the vendor's driver."
    return (
        f"{passed} of {len(ran)} steps passed, --{report.mode}, {report.made}, {versions}."
        f"{simulated if report.simulated else ''}"
    )


def _first(row: StepRow | None) -> str:
    if row is None:
        return "<p class='good'>Nothing failed.</p>"
    failure = row.failures[0] if row.failures else {"name": row.title, "reason": row.found}
    return (
        f"<div class='first'><strong>First to look at: {escape(row.title)}</strong>, {escape(row.state)}"
        f"<br>{escape(failure['name'])}<pre>{escape(failure['reason'][:1500])}</pre>"
        f"{escape(row.advice)}</div>"
    )


def _failures(row: StepRow) -> str:
    shown = row.failures[:_MOST_FAILURES]
    items = "".join(
        f"<details><summary>{escape(failure['name'])}</summary><pre>{escape(failure['reason'])}</pre></details>"
        for failure in shown
    )
    more = len(row.failures) - len(shown)
    return f"<h2>Failed: {escape(row.title)}</h2>{items}{f'<p>and {more} more</p>' if more else ''}"


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    return table(rows, good=(PASSED,), bad=(FAILED, CRASHED, TIMED_OUT))
