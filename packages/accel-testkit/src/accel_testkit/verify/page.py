# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: no script, nothing from the network, and every value escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from accel_testkit.verify.report import PASSED, Report, Row

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --good: #2e7d32; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; } td.number { text-align: right; white-space: nowrap; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .6rem; margin: .3rem 0; }
.passed { color: var(--good); } .failed, .crashed, .timed-out { color: var(--bad); font-weight: 600; }
.first { border-left: 4px solid var(--bad); padding: .3rem 1rem; background: #c628280d; }
"""
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
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n<body>{''.join(parts)}</body></html>\n"
    )


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


def _first(row: Row | None) -> str:
    if row is None:
        return "<p class='passed'>Nothing failed.</p>"
    failure = row.failures[0] if row.failures else {"name": row.title, "reason": row.found}
    return (
        f"<div class='first'><strong>First to look at: {escape(row.title)}</strong>, {escape(row.state)}"
        f"<br>{escape(failure['name'])}<pre>{escape(failure['reason'][:1500])}</pre>"
        f"{escape(row.advice)}</div>"
    )


def _failures(row: Row) -> str:
    shown = row.failures[:_MOST_FAILURES]
    items = "".join(
        f"<details><summary>{escape(failure['name'])}</summary><pre>{escape(failure['reason'])}</pre></details>"
        for failure in shown
    )
    more = len(row.failures) - len(shown)
    return f"<h2>Failed: {escape(row.title)}</h2>{items}{f'<p>and {more} more</p>' if more else ''}"


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(_cell(row.get(name)) for name in names)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, int | float):
        return f"<td class='number'>{value:g}</td>"
    text = escape("" if value is None else str(value))
    if "\n" in text:
        return f"<td><pre>{text}</pre></td>"
    state = text.replace(" ", "-")
    return (
        f"<td class='{state}'>{text}</td>"
        if state in ("passed", "failed", "crashed", "timed-out")
        else f"<td>{text}</td>"
    )


_WIDTH, _BAR = 320, 16


def _bars(row: Row) -> str:
    """Return a picture of the ratios: above 1, ours is faster than what it stands beside."""
    rows = [r for r in row.table if isinstance(r.get("ratio"), int | float) and r["ratio"] > 0]
    if not rows:
        return ""
    longest = max(1.0, *(r["ratio"] for r in rows))
    lines = []
    for number, r in enumerate(rows):
        y, width = number * (_BAR + 8), _WIDTH * r["ratio"] / longest
        label = escape(f"{r['what']}, {r['size']}: {r['ratio']:g} x {r['beside']}")
        lines.append(
            f"<rect x='0' y='{y}' width='{width:.0f}' height='{_BAR}' fill='#5c7cfa'/>"
            f"<text x='{_WIDTH + 10}' y='{y + _BAR - 4}' font-size='12' fill='currentColor'>{label}</text>"
        )
    one, height = _WIDTH / longest, len(rows) * (_BAR + 8)
    lines.append(
        f"<line x1='{one:.0f}' y1='0' x2='{one:.0f}' y2='{height}' stroke='currentColor' stroke-dasharray='3'/>"
    )
    return (
        f"<svg role='img' aria-label='ratios' width='100%' viewBox='0 0 900 {height}'>{''.join(lines)}</svg>"
    )
