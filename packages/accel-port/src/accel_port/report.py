# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Findings as a summary, as Markdown, JSON or SARIF, and as a baseline that later runs leave out."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from accel_port.__about__ import __version__
from accel_port.errors import PortError
from accel_port.porting import ImportRule
from accel_port.project import FileResult, FindingRow
from accel_port.rules import RULES
from accel_port.rules.base import Level

DOCUMENTATION = "https://github.com/accel-project/accel/blob/main/docs/port-rules.md"
_TITLES = {
    Level.REVIEW: "Rewritten, to be reviewed",
    Level.REPORTED: "Left as it is",
    Level.REWRITTEN: "Rewritten",
}


def link(rule: str) -> str:
    """Return where the documentation explains a rule."""
    return f"{DOCUMENTATION}#{rule}"


def rows_of(results: Iterable[FileResult]) -> list[FindingRow]:
    """Return every finding."""
    return [row for result in results for row in result.rows]


def counts(results: Iterable[FileResult]) -> Counter[Level]:
    """Return how many findings have each level."""
    return Counter(row.finding.level for row in rows_of(results))


def summary(results: list[FileResult]) -> str:
    """Return the report for a terminal: what a person has to look at, and then the numbers."""
    parts = []
    for level in (Level.REVIEW, Level.REPORTED):
        rows = [row for row in rows_of(results) if row.finding.level is level]
        if rows:
            parts += [f"{_TITLES[level]}:", *map(_lines, rows), ""]
    if failures := [f"  {result.path}: {result.failure}" for result in results if result.failure]:
        parts += ["Not ported:", *failures, ""]
    parts.append(totals(results))
    return "\n".join(parts) + "\n"


def totals(results: list[FileResult]) -> str:
    """Return the numbers in one sentence."""
    by_level = counts(results)
    failed = sum(bool(result.failure) for result in results)
    changed = sum(result.changed for result in results)
    text = (
        f"{len(results)} files, {changed} to change: {by_level[Level.REWRITTEN]} uses rewritten,"
        f" {by_level[Level.REVIEW]} rewritten and to be reviewed, {by_level[Level.REPORTED]} left"
    )
    return text + (f", {failed} files not ported." if failed else ".")


def _lines(row: FindingRow) -> str:
    finding = row.finding
    code = row.code if len(row.code) <= 80 else row.code[:77] + "..."
    text = f"  {row.path}:{row.line}:{row.column}: {code}\n      {finding.message} [{finding.rule}]"
    return text + (f"\n      do: {finding.advice}" if finding.advice else "")


def as_json(results: list[FileResult]) -> str:
    """Return everything as JSON."""
    by_level = counts(results)
    return json.dumps(
        {
            "version": 1,
            "tool": f"accel-port {__version__}",
            "counts": {level.value: by_level[level] for level in Level},
            "files": [
                {
                    "path": str(result.path),
                    "changed": result.changed,
                    "lines": result.lines,
                    **({"failure": result.failure} if result.failure else {}),
                    "findings": [_as_dict(row) for row in result.rows],
                }
                for result in results
                if result.rows or result.failure
            ],
        },
        indent=1,
    )


def _as_dict(row: FindingRow) -> dict[str, Any]:
    finding, place = row.finding, ("line", "column", "end_line", "end_column", "code")
    return {
        "rule": finding.rule,
        "level": finding.level.value,
        **{name: getattr(row, name) for name in place},
        "message": finding.message,
        "advice": finding.advice,
        "edits": [[edit.start, edit.end, edit.text] for edit in finding.edits],
    }


def as_markdown(results: list[FileResult]) -> str:
    """Return the report as Markdown."""
    parts = ["# Port to every accelerator", "", totals(results), ""]
    for level in (Level.REVIEW, Level.REPORTED, Level.REWRITTEN):
        rows = [row for row in rows_of(results) if row.finding.level is level]
        if not rows:
            continue
        parts += [f"## {_TITLES[level]}", "", "| place | code | why | do |", "| --- | --- | --- | --- |"]
        for row in rows:
            why = f"{_cell(row.finding.message)} ([{row.finding.rule}]({link(row.finding.rule)}))"
            do = _cell(row.finding.advice)
            parts.append(f"| {row.path}:{row.line} | `{_cell(row.code)}` | {why} | {do} |")
        parts.append("")
    if failures := [f"- {result.path}: {result.failure}" for result in results if result.failure]:
        parts += ["## Not ported", "", *failures, ""]
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


def as_sarif(results: list[FileResult]) -> str:
    """Return the report as SARIF 2.1.0, which code hosts show next to the lines."""
    levels = {Level.REWRITTEN: "note", Level.REVIEW: "warning", Level.REPORTED: "warning"}
    rules = [
        {"id": rule.name, "shortDescription": {"text": rule.summary}, "helpUri": link(rule.name)}
        for rule in (*RULES, ImportRule())
    ]
    run = {
        "tool": {"driver": {"name": "accel-port", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [
            {
                "ruleId": row.finding.rule,
                "level": levels[row.finding.level],
                "message": {"text": ". ".join(filter(None, [row.finding.message, row.finding.advice]))},
                "locations": [{"physicalLocation": _location(row)}],
            }
            for row in rows_of(results)
        ],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=1)


def _location(row: FindingRow) -> dict[str, Any]:
    start = {"startLine": row.line, "startColumn": row.column}
    region = start | {"endLine": row.end_line, "endColumn": row.end_column}
    return {"artifactLocation": {"uri": quote(Path(row.path).as_posix())}, "region": region}


FORMATS = {".md": as_markdown, ".json": as_json, ".sarif": as_sarif}


def write_report(path: Path, results: list[FileResult]) -> None:
    """Write the report in the format of the file's suffix. Raises `PortError`, `OSError`."""
    made = FORMATS.get(path.suffix)
    if made is None:
        raise PortError(
            "the report cannot be written",
            f"a file with the suffix {path.suffix!r}",
            f"one of {' '.join(FORMATS)}",
            "choose another name",
        )
    path.write_text(made(results), encoding="utf-8")


# Baselines


def write_baseline(path: Path, results: list[FileResult]) -> None:
    """Record the findings of now, so that later runs show what is new."""
    marks = Counter(mark for result in results for mark in _marks(result))
    path.write_text(
        json.dumps({"version": 1, "findings": dict(sorted(marks.items()))}, indent=1) + "\n", encoding="utf-8"
    )


def without_baseline(path: Path, results: list[FileResult]) -> list[FindingRow]:
    """Return the findings that a baseline does not have. Raises `PortError`."""
    try:
        findings = json.loads(path.read_text(encoding="utf-8"))["findings"]
        known = Counter({str(mark): int(count) for mark, count in findings.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        missing = isinstance(error, FileNotFoundError)
        found = f"no file {path}" if missing else f"{type(error).__name__}: {error}"
        do = "write it first" if missing else "write it again"
        what = "the baseline cannot be read"
        raise PortError(what, found, "a file of --write-baseline", do) from error
    new = []
    for result in results:
        for row, mark in zip(result.rows, _marks(result), strict=True):
            if known[mark]:
                known[mark] -= 1
            else:
                new.append(row)
    return new


def _marks(result: FileResult) -> list[str]:
    """Return a mark for each finding that survives changes elsewhere in the file."""
    return [
        f"{Path(row.path).as_posix()}:{row.finding.rule}:{hashlib.sha256(row.code.encode()).hexdigest()[:12]}"
        for row in result.rows
    ]
