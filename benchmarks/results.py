# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Write a benchmark's rows as a Markdown table and as JSON, with the machine and the versions they come from."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "results"


def circumstances() -> dict[str, str]:
    """What a reader needs to judge the figures."""
    versions = {
        name: _version(name) for name in ("torch", "deepspeed", "accel-core", "accel-cpu", "accel-ops")
    }
    machine = f"{_processor()}, {os.cpu_count()} CPUs, {platform.system()}"
    return {"machine": machine, "python": platform.python_version(), **versions}


def write(
    name: str,
    title: str,
    text: str,
    rows: Sequence[Mapping[str, Any]],
    folder: Path = FOLDER,
    more: Mapping[str, str] | None = None,
) -> None:
    """Write `<name>.md` and `<name>.json`, and show the table; `more` joins the circumstances."""
    folder.mkdir(parents=True, exist_ok=True)
    here = circumstances() | dict(more or {})
    table = markdown(rows)
    note = "; ".join(f"{key} {value}" for key, value in here.items())
    page = f"# {title}\n\n{text}\n\n{table}\n\nMeasured on: {note}.\n"
    (folder / f"{name}.md").write_text(page, encoding="utf-8")
    data = {"title": title, "circumstances": here, "rows": list(rows)}
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"{title}\n\n{table}\n")


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of equal keys as a Markdown table; numbers are right-aligned."""
    head = list(rows[0])
    number = [isinstance(rows[0][key], (int, float)) for key in head]
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(" ---: " if right else " --- " for right in number) + "|",
    ]
    lines += ["| " + " | ".join(cell(row[key]) for key in head) + " |" for row in rows]
    return "\n".join(lines)


def arguments(description: str | None) -> argparse.Namespace:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=31, help="interleaved rounds; medians are reported")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the result files")
    return parser.parse_args()


def cell(value: Any) -> str:
    """A value as the pages show it."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU"
    )
