# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel io bench`: a table of engines, block sizes and queue depths, beside buffered and raw system calls."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from accel_core.errors import InvalidEnvironment
from accel_ops.cli import folder
from accel_ops.cli.measurement import Measurement, Rates
from accel_ops.cli.progress import Progress
from accel_ops.io.choice import open_engine
from accel_ops.io.requests import EngineOptions

_BAR = 24


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    path: Path
    engines: list[str]
    blocks: list[int]
    depths: list[int]
    workers: int
    size: int
    repeat: int

    @classmethod
    def of(cls, args: argparse.Namespace) -> Plan:
        """Return the plan of a command line."""
        return cls(
            args.path,
            args.engine or [name for name in ("uring", "threads") if _usable(name)] or ["python"],
            args.block,
            args.depth,
            args.workers,
            args.size,
            args.repeat,
        )


@dataclass(frozen=True)
class Row:
    """One line of the table. block and depth are 0 for plain system calls."""

    name: str
    block: int
    depth: int
    rates: Rates

    @property
    def label(self) -> str:
        """Its name, and what it was measured with."""
        return f"{self.name:28} {_short(self.block):>6} {self.depth or '':>6}"


def measured(plan: Plan, as_json: bool, plot: Path | None) -> str:
    """Measure, and return the table or JSON. Raises UnsuitableFolder, OSError."""
    folder.check(plan.path, plan.size)
    with Progress() as progress, folder.scratch_file(plan.path) as fd:
        progress.show(0, "making the file to be measured")
        rows = _rows(plan, Measurement(fd, plan.size), progress)
    if plot is not None:
        plot.write_text(_svg(rows, _title(plan)), encoding="utf-8")
    return _json(plan, rows) if as_json else _table(plan, rows)


def _rows(plan: Plan, measurement: Measurement, progress: Progress) -> list[Row]:
    kinds: list[tuple[str, int, int, Callable[[], Rates]]] = [
        ("buffered, 1 thread, fsync", 0, 0, measurement.buffered),
        ("raw direct, 8 threads", 1 << 20, 0, measurement.raw),
    ]
    for name, block, depth in itertools.product(plan.engines, plan.blocks, plan.depths):
        options = EngineOptions(block, depth, plan.workers)
        kinds.append((name, block, depth, partial(measurement.engine, name, options)))
    best: dict[int, Rates] = {}
    # Repetitions are apart in time: a disturbance does not hit one line alone.
    for turn, (number, (name, block, depth, work)) in itertools.product(range(plan.repeat), enumerate(kinds)):
        progress.show(
            (turn * len(kinds) + number) / (plan.repeat * len(kinds)), f"{name} {_short(block)} {depth}"
        )
        rates = work()
        best[number] = rates.better(best.get(number, rates))
    return [Row(name, block, depth, best[number]) for number, (name, block, depth, _) in enumerate(kinds)]


def _title(plan: Plan) -> str:
    kind = folder.file_system(plan.path) or "unknown file system"
    return f"{plan.path} ({kind}), {plan.size >> 20} MiB, best of {plan.repeat}, GB/s"


def _table(plan: Plan, rows: list[Row]) -> str:
    fastest = max(max(row.rates.write, row.rates.read) for row in rows)
    lines = [_title(plan), f"{'':28} {'block':>6} {'depth':>6}  {'overwrite':31}  read"]
    for row in rows:
        bars = [f"{rate:6.2f} {'█' * round(rate / fastest * _BAR):{_BAR}}" for rate in _pair(row)]
        lines.append(f"{row.label}  {bars[0]}  {bars[1]}".rstrip())
    return "\n".join(lines) + "\n"


def _json(plan: Plan, rows: list[Row]) -> str:
    made: dict[str, Any] = {
        "path": str(plan.path),
        "file_system": folder.file_system(plan.path),
        "size": plan.size,
        "workers": plan.workers,
        "repeat": plan.repeat,
        "unit": "GB/s",
        "results": [
            {"name": row.name, "block_size": row.block, "queue_depth": row.depth, **asdict(row.rates)}
            for row in rows
        ],
    }
    return json.dumps(made, indent=2) + "\n"


def _svg(rows: list[Row], title: str) -> str:
    fastest = max(max(_pair(row)) for row in rows)
    body = [f'<text x="10" y="22">{escape(title)}; dark: overwrite, light: read</text>']
    for number, row in enumerate(rows):
        y = 40 + number * 34
        body.append(f'<text x="10" y="{y + 18}">{escape(" ".join(row.label.split()))}</text>')
        for part, (rate, color) in enumerate(zip(_pair(row), ("#1f5fa8", "#8ab6e8"), strict=True)):
            width, top = rate / fastest * 480, y + part * 13
            body.append(f'<rect x="260" y="{top}" width="{width:.1f}" height="12" fill="{color}"/>')
            body.append(f'<text x="{width + 266:.1f}" y="{top + 11}">{rate:.2f}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="820" height="{len(rows) * 34 + 50}"'
    style = 'font-family="sans-serif" font-size="12">'
    return "\n".join(
        [f"{head} {style}", '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>", ""]
    )


def _pair(row: Row) -> tuple[float, float]:
    return row.rates.write, row.rates.read


def _short(size: int) -> str:
    if not size:
        return ""
    return f"{size >> 20}M" if size % (1 << 20) == 0 else f"{size >> 10}K"


def _usable(name: str) -> bool:
    try:
        open_engine(EngineOptions(), name).close(0)
    except InvalidEnvironment:
        return False
    return True
