# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Shared parts of reports: text for a terminal, and a page as one HTML file.

A page has no script and nothing from the network, and every value is escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --good: #2e7d32; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
@media (max-width: 40rem) { table { display: block; overflow-x: auto; } svg { max-width: 100%; } }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; } td.number { text-align: right; white-space: nowrap; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .6rem; margin: .3rem 0; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.first { border-left: 4px solid var(--bad); padding: .3rem 1rem; background: #c628280d; }
"""


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def page(title: str, parts: Iterable[str]) -> str:
    """Return the file. parts: HTML, in which values are escaped already."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n<body>{''.join(parts)}</body></html>\n"
    )


def table(rows: Iterable[Mapping[str, Any]], *, good: Collection[str] = (), bad: Collection[str] = ()) -> str:
    """Return a table with the first row's keys as its head. good, bad: texts of cells that have a colour."""
    rows = list(rows)
    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(_cell(row.get(name), good, bad) for name in names)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any, good: Collection[str], bad: Collection[str]) -> str:
    if isinstance(value, int | float):
        return f"<td class='number'>{value:g}</td>"
    text = "" if value is None else str(value)
    if "\n" in text:
        return f"<td><pre>{escape(text)}</pre></td>"
    state = " class='good'" if text in good else " class='bad'" if text in bad else ""
    return f"<td{state}>{escape(text)}</td>"
