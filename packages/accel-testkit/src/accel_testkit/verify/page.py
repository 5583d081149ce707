# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: no script, nothing from the network, and every value escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        *(f"<h2>{escape(row.title)}</h2>{_bars(row)}{_table(row.table)}" for row in report.rows if row.table),
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


def _bars(row: StepRow) -> str:
    """Return a picture of the ratios: above 1, ours is faster than what it stands beside."""
    found = [
        (f"{r['what']}, {r['size']}", f"{r['ratio']:g} x {r['beside']}", r["ratio"])
        for r in row.table
        if isinstance(r.get("ratio"), int | float) and r["ratio"] > 0
    ]
    return bars(found) if found else ""


_WIDTH, _BAR, _LABEL, _MOST = 300, 16, 380, 8.0


def bars(rows: Sequence[tuple[str, str, float]]) -> str:
    """Return an SVG: a bar for each (label, text, factor), how many times as fast ours is as what the text names."""
    # A bar beyond the widest one is cut: its number says how long it would be.
    scale, height = _WIDTH / _MOST, len(rows) * (_BAR + 8) + 8
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_LABEL + _WIDTH + 160} {height}' font-size='12' "
        "font-family='sans-serif' role='img' aria-label='how many times as fast'>"
        "<rect width='100%' height='100%' fill='white'/>"
    ]
    for number, (label, text, factor) in enumerate(rows):
        y, width = number * (_BAR + 8) + 8, scale * min(factor, _MOST)
        parts.append(
            f"<text x='{_LABEL - 8}' y='{y + 12}' text-anchor='end'>{escape(label)}</text>"
            f"<rect x='{_LABEL}' y='{y}' width='{width:.0f}' height='{_BAR}' fill='#5c7cfa'/>"
            f"<text x='{_LABEL + width + 6:.0f}' y='{y + 12}'>{escape(text)}</text>"
        )
    one = _LABEL + scale
    parts.append(
        f"<line x1='{one:.0f}' x2='{one:.0f}' y1='0' y2='{height}' stroke='black' stroke-dasharray='3'/>"
    )
    return "".join(parts) + "</svg>"
