# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stacked bars as SVG: milliseconds by part, one bar for each run."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

#: Hues a golden angle apart, so that neighbours differ.
_ANGLE = 137.5
_WIDTH, _LEFT, _BAR, _GAP, _LINE = 900, 130, 34, 18, 20


def stacked(bars: Mapping[str, Mapping[str, float]], title: str) -> str:
    """Return an SVG image. bars: milliseconds by part, by the name of the bar."""
    parts = list(dict.fromkeys(part for bar in bars.values() for part in bar))
    longest = max(sum(bar.values()) for bar in bars.values())
    scale = (_WIDTH - _LEFT - 100) / longest
    body = [f'<text x="10" y="22" font-size="15">{escape(title)}</text>']
    y = 40
    for name, bar in bars.items():
        body += _bar(name, bar, parts, y, scale)
        y += _BAR + _GAP
    for number, part in enumerate(parts):
        row = y + number * _LINE
        body.append(f'<rect x="{_LEFT}" y="{row}" width="12" height="12" fill="{_color(number)}"/>')
        values = " → ".join(f"{bar.get(part, 0.0):,.1f} ms" for bar in bars.values())
        body.append(f'<text x="{_LEFT + 20}" y="{row + 11}">{escape(part)}: {values}</text>')
    height = y + len(parts) * _LINE + 10
    style = 'font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" {style}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>", ""])


def _bar(name: str, bar: Mapping[str, float], parts: list[str], y: int, scale: float) -> list[str]:
    made = [f'<text x="{_LEFT - 10}" y="{y + _BAR // 2 + 5}" text-anchor="end">{escape(name)}</text>']
    x = float(_LEFT)
    for number, part in enumerate(parts):
        width = bar.get(part, 0.0) * scale
        if width > 0:
            box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}"'
            label = escape(f"{part}: {bar[part]:,.1f} ms")
            made.append(f'<rect {box} fill="{_color(number)}"><title>{label}</title></rect>')
        x += width
    made.append(f'<text x="{x + 8:.1f}" y="{y + _BAR // 2 + 5}">{sum(bar.values()):,.0f} ms</text>')
    return made


def _color(number: int) -> str:
    return f"hsl({number * _ANGLE % 360:.0f},60%,{45 + number % 3 * 10}%)"
