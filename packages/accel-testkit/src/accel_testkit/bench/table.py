# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The figures as rows, as a Markdown page and as one picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

#: What ours stands beside.
BESIDE = ("DeepSpeed", "torch", "limit")
HEAD = ("measurement", "size", "ours", *BESIDE)
_TEXT = """Milliseconds, medians of calls in turns: less is faster. The factor says how many times as fast ours is.

- **DeepSpeed**: its own op, where it is compiled (`--compile` does that), or its own methods.
- **torch**: `AdamW(fused=True)`; gloo.
- **limit**: what the machine can do: a STREAM triad of as many bytes, a copy of the tensor, direct I/O.
"""


def row(what: str, size: str, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return a row. seconds: by contender; `ours` is one of them."""
    shown = {name: _rounded(1e3 * seconds[name]) if name in seconds else None for name in BESIDE}
    return {"what": what, "size": size, "value": _rounded(1e3 * seconds["ours"]), "unit": "ms", **shown}


def is_row(row: Mapping[str, Any]) -> bool:
    """Return whether values that somebody else wrote are a row."""
    texts = (row.get(name) for name in ("what", "size", "unit"))
    times = [row.get(name) for name in ("value", *BESIDE) if name == "value" or row.get(name) is not None]
    return all(isinstance(text, str) for text in texts) and all(
        isinstance(value, int | float) and 0 < value < math.inf for value in times
    )


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a row as texts, with the factors."""
    shown = {"measurement": row["what"], "size": row["size"], "ours": f"{row['value']:g} {row['unit']}"}
    for name in BESIDE:
        value = row.get(name)
        shown[name] = "—" if value is None else f"{value:g} ({value / row['value']:.2f} x)"
    return shown


def markdown(title: str, rows: Sequence[Mapping[str, Any]], circumstances: Mapping[str, str]) -> str:
    """Return the page, which shows the picture bench.svg."""
    lines = [cells(each) for each in rows]
    note = "; ".join(f"{name} {value}" for name, value in circumstances.items())
    return "\n".join(
        [
            f"# {title}",
            "",
            _TEXT,
            f"| {' | '.join(HEAD)} |",
            f"|{' --- |' * len(HEAD)}",
            *(f"| {' | '.join(line.values())} |" for line in lines),
            "",
            "![How many times as fast as stock DeepSpeed, or as torch](bench.svg)",
            "",
            f"Measured on: {note}.",
            "",
        ]
    )


_WIDTH, _BAR, _LABEL, _MOST = 300, 16, 380, 8.0


def picture(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return an SVG: a bar for each measurement, how many times as fast as DeepSpeed's own, or else as torch's."""
    bars = []
    for each in rows:
        beside = next((name for name in BESIDE[:2] if each.get(name) is not None), None)
        if beside is not None:
            factor = each[beside] / each["value"]
            bars.append((f"{each['what']}, {each['size']}", f"{factor:.2f} x {beside}", factor))
    # A bar beyond the widest one is cut: its number says how long it would be.
    scale, height = _WIDTH / _MOST, len(bars) * (_BAR + 8) + 8
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_LABEL + _WIDTH + 160} {height}' font-size='12' "
        "font-family='sans-serif' role='img' aria-label='how many times as fast'>"
        f"<rect width='100%' height='100%' fill='white'/>"
    ]
    for number, (label, text, factor) in enumerate(bars):
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
    return "".join(parts) + "</svg>\n"
