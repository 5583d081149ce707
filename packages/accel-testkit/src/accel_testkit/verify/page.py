# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: no script, nothing from the network, and every value escaped."""

from __future__ import annotations

from html import escape

from accel_core.reports import page, table
from accel_testkit.verify.report import CRASHED, FAILED, PASSED, TIMED_OUT, Report

_MOST_FAILURES = 200


def html(report: Report) -> str:
    """Return the page: the summary with the first failure and what to do, the steps, every failure, the tables."""
    title = f"accel verify: {report.device}"
    names = {"step": "title", "result": "state", "seconds": "seconds", "found": "found"}
    sections = [("Steps", [{name: getattr(row, key) for name, key in names.items()} for row in report.rows])]
    for row in report.rows:
        more = len(row.failures) - _MOST_FAILURES
        heading = f"Failed: {row.title}" + (f" (and {more} more)" if more > 0 else "")
        sections.append((heading, row.failures[:_MOST_FAILURES]))
    sections += [(row.title, row.table) for row in report.rows]
    tables = [
        f"<h2>{escape(name)}</h2>{table(rows, good=(PASSED,), bad=(FAILED, CRASHED, TIMED_OUT))}"
        for name, rows in sections
        if rows
    ]
    return page(title, [f"<h1>{escape(title)}</h1><pre class='first'>{escape(report.text())}</pre>", *tables])
