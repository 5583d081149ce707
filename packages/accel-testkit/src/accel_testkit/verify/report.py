# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The report of `accel verify`: its file, and its summary in twenty lines."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accel_core.reports import one_line
from accel_testkit.suite.launch import write

#: Raised when the file changes its meaning.
SCHEMA = 1
PASSED, FAILED, CRASHED, TIMED_OUT, NOT_RUN = "passed", "failed", "crashed", "timed out", "not run"
#: States after which a step of an interrupted report is not run again.
DONE = (PASSED, FAILED)


@dataclass
class StepRow:
    """The result of one step.

    step, title: name in the table of steps, and in words.
    state:       PASSED, FAILED, CRASHED, TIMED_OUT or NOT_RUN.
    seconds:     how long it took.
    found:       the result in one line.
    advice:      what to do about it; empty if nothing.
    failures:    what failed, as {"name": …, "reason": …}, the most basic first.
    table:       rows of facts, all with the same keys.
    """

    step: str
    title: str
    state: str
    seconds: float = 0.0
    found: str = ""
    advice: str = ""
    failures: list[dict[str, str]] = field(default_factory=list)
    table: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Report:
    """The contents of `report.json`.

    accelerator: key of the vendor under test.
    mode:        `quick` or `full`.
    simulated:   key of the simulated device, or the runtime on an emulated driver; empty on a real one.
    made:        UTC time of the start, ISO 8601.
    versions:    {distribution: version}, with Python's.
    """

    accelerator: str
    mode: str
    simulated: str
    made: str
    versions: dict[str, str]
    rows: list[StepRow] = field(default_factory=list)
    schema: int = SCHEMA

    @property
    def device(self) -> str:
        """The accelerator, or the device that is simulated."""
        return f"simulated {self.simulated}" if self.simulated else self.accelerator

    @property
    def worst(self) -> StepRow | None:
        """The first step that did not pass; None if all that ran passed."""
        return next((row for row in self.rows if row.state not in (PASSED, NOT_RUN)), None)

    def same_subject(self, other: Report) -> bool:
        """Return whether an interrupted run can be continued: same device, mode and versions."""
        mine, theirs = ((r.schema, r.accelerator, r.mode, r.simulated, r.versions) for r in (self, other))
        return mine == theirs

    def write(self, path: Path) -> None:
        """Write the file atomically, so that an interrupted run leaves the last whole one."""
        write(path, asdict(self))

    def text(self) -> str:
        """Return the summary for an issue: at most twenty lines."""
        lines = [f"accel verify --{self.mode} on {self.device}, {self.made[:10]}"]
        shown = ("python", "torch", "deepspeed", "accel-core", f"accel-{self.accelerator}")
        lines.append(", ".join(f"{name} {self.versions[name]}" for name in shown if self.versions.get(name)))
        devices = next((row.found for row in self.rows if row.step == "machine"), "")
        lines += [devices] if devices else []
        width = max((len(row.title) for row in self.rows), default=0)
        lines += [f"  {row.state:9}  {row.title:{width}}  {row.found}"[:150].rstrip() for row in self.rows]
        worst = self.worst
        if worst is not None:
            lines += [f"first to look at: {worst.title}: {_first_failure(worst)}"[:240]]
            lines += [f"do: {worst.advice}"] if worst.advice else []
        return "\n".join(map(one_line, lines[:20])) + "\n"


def _first_failure(row: StepRow) -> str:
    if not row.failures:
        return row.found
    reason = row.failures[0]["reason"].strip().splitlines()
    return f"{row.failures[0]['name']}: {reason[0] if reason else ''}"


def kept(path: Path) -> Report | None:
    """Return the report in a file, None if there is none of this schema."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        report = Report(**{**plain, "rows": [StepRow(**row) for row in plain["rows"]]})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return report if report.schema == SCHEMA else None


class Privacy:
    """Removes from texts what says whose machine it is: host, user, paths, addresses, serial numbers."""

    _PATTERNS = (
        (re.compile(r"(?<=://)[^/\s@]+(?=@)"), "<secret>"),
        (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "<e-mail>"),
        (re.compile(r"\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b"), "<address>"),
        (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.I), "<address>"),
        (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I), "<id>"),
    )

    def __init__(self, *folders: Path) -> None:
        """folders: others that are replaced, such as the report's own."""
        known = {os.getcwd(): "<folder>", sys.prefix: "<python>", sys.base_prefix: "<base python>"}
        known |= {str(folder.resolve()): "<report>" for folder in folders}
        known |= {tempfile.gettempdir(): "<tmp>", str(Path.home()): "<home>"}
        names = {socket.gethostname(): "<host>", socket.gethostname().partition(".")[0]: "<host>"}
        try:
            names[getpass.getuser()] = "<user>"
        except (KeyError, OSError):  # no name for this number
            pass
        paths = {path: word for path, word in known.items() if len(path) > 1}
        self._paths = sorted(paths.items(), key=lambda item: -len(item[0]))
        # "root" and short names are words of every log, and tell nothing.
        self._names = {
            n: w for n, w in names.items() if len(n) > 3 and n not in ("root", "localhost", "user")
        }

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        for path, word in self._paths:
            text = text.replace(path, word)
        for pattern, word in self._PATTERNS:
            text = pattern.sub(word, text)
        for name, word in self._names.items():
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, text)
        return text

    def row(self, row: StepRow) -> StepRow:
        """Return a row without them."""
        plain: dict[str, Any] = self._deep(asdict(row))
        return StepRow(**plain)

    def _deep(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {name: self._deep(one) for name, one in value.items()}
        return [self._deep(one) for one in value] if isinstance(value, list) else value
