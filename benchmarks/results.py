# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Options of all benchmarks, and their results as tables, JSON and plots.

A page names the machine and the versions that its figures come from.
"""

import argparse
import datetime
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_core.processes import run
from accel_testkit.verify.facts import processor

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "results"


def circumstances() -> dict[str, str]:
    """Return the machine and the versions, with which a reader judges the values."""
    versions = {
        name: _version(name) for name in ("torch", "deepspeed", "accel-core", "accel-cpu", "accel-ops")
    }
    machine = f"{processor()}, {platform.system()}"
    return {"machine": machine, "python": platform.python_version(), **versions, **_origin()}


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


def parser(description: str | None, rounds: int = 31) -> argparse.ArgumentParser:
    """A parser of the options that every benchmark has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds; medians are reported")
    made.add_argument("--out", type=Path, default=FOLDER, help="folder of the result files")
    return made


def axes(title: str, **options: Any) -> Any:
    """Empty axes of a plot for the pages."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    found = plt.subplots(figsize=(8, 4.5))[1]
    found.set(title=title, **options)
    return found


def save(drawn: Any, file: Path) -> None:
    """Write a plot, the same bytes for the same figures."""
    drawn.legend(fontsize="small")
    drawn.figure.savefig(file, metadata={"Date": None}, bbox_inches="tight")


def cell(value: Any) -> str:
    """A value as the pages show it."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _origin() -> dict[str, str]:
    """The day, and the commit of this checkout; nothing of the latter without git."""
    day = {"date": datetime.date.today().isoformat()}
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = run(command, cwd=FOLDER)
    except OSError:
        return day
    return day if done.returncode else day | {"commit": done.stdout.strip()}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
