# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The comparison as one HTML file: the first difference, the error by depth as a plot, and by place and step."""

from __future__ import annotations

import math
from html import escape

from accel_compare.difference import Compared, describe, describe_nearest
from accel_core.reports import page

_WIDTH, _HEIGHT = 860, 220
#: Decades of the plot: errors below are drawn at its foot.
_LOW, _HIGH = -9, 1


def html(title: str, outcome: Compared) -> str:
    """Return the page; it loads nothing."""
    steps = sorted({step for errors in outcome.errors.values() for step in errors})
    head = "".join(f"<th>step {step}</th>" for step in steps)
    rows = "".join(
        f"<tr><td>{escape(phase)}</td><td>{escape(where)}</td>{''.join(_cell(errors.get(step)) for step in steps)}</tr>"
        for (phase, where), errors in outcome.errors.items()
    )
    first = "\n".join(describe(outcome.first)) if outcome.first else "Nothing differs beyond rounding."
    parts = [
        f"<h1>{escape(title)}</h1><div class='{'first' if outcome.first else 'good'}'><pre>{escape(first)}</pre></div>",
        *(f"<p>{escape(note)}</p>" for note in outcome.notes),
        f"<p>{escape(describe_nearest(outcome.nearest))}</p>" if outcome.nearest else "",
        "<h2>Error by depth</h2><p>Relative error of each event's results, in the order of the run; a line a step.</p>"
        f"{_plot(outcome, steps)}<h2>Error by place and step</h2>"
        f"<table><thead><tr><th>phase</th><th>where</th>{head}</tr></thead><tbody>{rows}</tbody></table>",
    ]
    return page(title, parts)


def _cell(error: float | None) -> str:
    if error is None:
        return "<td></td>"
    strength = 0 if not error else max(0.0, min(1.0, (_decade(error) - _LOW) / (_HIGH - _LOW)))
    return f"<td class='number' style='background:rgb(198 40 40 / {strength * 0.6:.2f})'>{error:.1e}</td>"


def _decade(error: float) -> float:
    return min(float(_HIGH), math.log10(error)) if error > 0 else float(_LOW)


def _plot(outcome: Compared, steps: list[int]) -> str:
    across = max(len(outcome.errors) - 1, 1)
    lines = []
    for number, step in enumerate(steps):
        points = " ".join(
            f"{_WIDTH * n / across:.0f},{_HEIGHT * (_HIGH - max(_LOW, _decade(errors[step]))) / (_HIGH - _LOW):.0f}"
            for n, errors in enumerate(outcome.errors.values())
            if step in errors
        )
        hue = 220 + 140 * number / max(len(steps) - 1, 1)
        lines.append(f"<polyline points='{points}' fill='none' stroke='hsl({hue:.0f} 70% 50%)'/>")
    marks = "".join(
        f"<text x='0' y='{_HEIGHT * (_HIGH - decade) / (_HIGH - _LOW) + 4:.0f}' font-size='11' fill='currentColor'>"
        f"1e{decade}</text>"
        for decade in range(_LOW, _HIGH + 1, 2)
    )
    return (
        f"<svg role='img' aria-label='relative error by depth, a line for each step' width='100%'"
        f" viewBox='0 -8 {_WIDTH} {_HEIGHT + 16}'>{marks}{''.join(lines)}</svg>"
    )
