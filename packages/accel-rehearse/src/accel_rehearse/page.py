# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file, with the memory of one step as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from accel_core.reports import page, table
from accel_rehearse import report
from accel_rehearse.record import PHASES, DryRank, Rehearsal

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 900, 260, 70, 30, 24
_COLOURS = ("#adb5bd", "#74c0fc", "#ffa94d", "#8ce99a", "#b197fc", "#dee2e6")


def html(rehearsal: Rehearsal) -> str:
    """Return the page: verdict, what was rehearsed, a section for each rank, host memory, what is not promised."""
    verdict = report.verdict(rehearsal)
    colour = "good" if rehearsal.verdict == "fits" else "bad"
    parts = [
        f"<h1 class='{colour}'>{escape(verdict)}</h1>",
        table({"": name, "rehearsal": value} for name, value in report.facts(rehearsal).items()),
        table(report.ranks(rehearsal), bad=("out of memory", "failed")),
    ]
    for rank in rehearsal.ranks_rehearsed:
        parts += _rank(rehearsal, rank)
    parts += ["<h2>Host memory</h2>", table(report.host(rehearsal))]
    for name, sentences in report.remarks(rehearsal).items():
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        parts.append(f"<h2>{escape(name.capitalize())}</h2><ul>{items}</ul>")
    return page(f"accel rehearse: {verdict}", parts)


def _rank(rehearsal: Rehearsal, rank: DryRank) -> Iterator[str]:
    yield f"<h2>{escape(report.title(rank))}: {escape(rank.outcome)}</h2>"
    if rank.failure is not None:
        yield f"<div class='first'><pre>{escape(rank.failure.message)}</pre></div>"
    yield f"<p>{escape(report.layers_of_memory(rank))}.</p>"
    yield timeline(rank, rehearsal.memory)
    yield f"<h3>Peak by phase</h3>{table(report.peaks(rank))}"
    yield f"<h3>Largest at the peak</h3>{table(report.largest(rank))}"
    if rank.collectives:
        yield f"<h3>Collectives</h3>{table(report.collectives(rank))}"


def timeline(rank: DryRank, limit: int) -> str:
    """Return a picture of the requested memory over one step: phases coloured, the peak marked; empty without one.

    limit: bytes that the program may use, drawn if they are near.
    """
    points = rank.timeline
    if not points:
        return ""
    first, last = min(at for at, _, _ in points), max(at for at, _, _ in points)
    peak_at, peak, phase = max(points, key=lambda point: point[1])
    top = max(peak, 1) if limit > 2 * peak else max(peak, limit, 1)

    def x(at: int) -> float:
        return _LEFT + (_WIDTH - _LEFT) * (at - first) / max(last - first, 1)

    def y(count: int) -> float:
        return _TOP + _HEIGHT * (1 - count / top)

    lines = []
    groups = [list(group) for _, group in groupby(points, key=lambda point: point[2])]
    for number, group in enumerate(groups):
        begin, end = x(group[0][0]), x(groups[number + 1][0][0] if number + 1 < len(groups) else last)
        name = group[0][2]
        colour = _COLOURS[PHASES.index(name) if name in PHASES else -1]
        lines.append(
            f"<rect x='{begin:.1f}' y='{_TOP}' width='{max(end - begin, 0.5):.1f}' height='{_HEIGHT}'"
            f" fill='{colour}' fill-opacity='.35'><title>{escape(name)}</title></rect>"
        )
        if end - begin > 60:
            lines.append(_text(begin + 4, _TOP + _HEIGHT + 16, name))
    path = " ".join(f"{x(at):.1f},{y(count):.1f}" for at, count, _ in points)
    lines.append(f"<polyline points='{path}' fill='none' stroke='currentColor' stroke-width='1.5'/>")
    for count in (top, top // 2, 0):
        lines.append(_text(0, y(count) + 4, report.size(count)))
    if limit <= top:
        lines.append(
            f"<line x1='{_LEFT}' x2='{_WIDTH}' y1='{y(limit):.1f}' y2='{y(limit):.1f}' stroke='#c62828'"
            f" stroke-dasharray='6 4'><title>{escape(report.size(limit))} for the program</title></line>"
        )
    module = next((known.module for known in rank.phases if known.name == phase), "")
    label = f"{report.size(peak)}, {phase}" + (f", {module}" if module else "")
    right = x(peak_at) > _WIDTH / 2
    lines.append(f"<circle cx='{x(peak_at):.1f}' cy='{y(peak):.1f}' r='4' fill='#c62828'/>")
    lines.append(_text(x(peak_at) + (-8 if right else 8), _TOP - 10, label, end=right))
    return (
        f"<svg role='img' aria-label='memory over one step' width='100%'"
        f" viewBox='0 0 {_WIDTH} {_TOP + _HEIGHT + _BOTTOM}'>{''.join(lines)}</svg>"
    )


def _text(x: float, y: float, text: str, *, end: bool = False) -> str:
    anchor = " text-anchor='end'" if end else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='12' fill='currentColor'{anchor}>{escape(text[:120])}</text>"
