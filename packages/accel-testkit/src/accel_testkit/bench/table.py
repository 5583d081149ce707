# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The figures as rows, as a Markdown page and as one picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accel_testkit.verify.page import bars

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


def picture(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return an SVG: a bar for each measurement, how many times as fast as DeepSpeed's own, or else as torch's."""
    found = []
    for each in rows:
        beside = next((name for name in BESIDE[:2] if each.get(name) is not None), None)
        if beside is not None:
            factor = each[beside] / each["value"]
            found.append((f"{each['what']}, {each['size']}", f"{factor:.2f} x {beside}", factor))
    return bars(found) + "\n"
