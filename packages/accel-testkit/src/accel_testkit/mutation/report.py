# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the mutants of one accelerator show: counts by rule, the survivors, and all of it as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accel_testkit.mutation.rules import SENTENCES

#: Raised when the written file changes its meaning.
SCHEMA = 1
OUTCOMES = ("killed", "survived", "equivalent", "broken at construction")


@dataclass
class Report:
    """The events of one run, collected.

    about:    accelerator, key, versions; the options of the run.
    failed:   checks that fail without a mutant, and so cannot notice one, with their texts.
    unsteady: checks that fail or pass by what ran before them.
    changed:  source files that changed during the run, which makes its outcomes void.
    left_out: number of mutants that are not judged, as they are in lines that nothing can reach on this machine.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    checks: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    count: int | None = None
    left_out: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, event: dict[str, Any]) -> None:
        """Take one event of the worker."""
        kind = event.pop("event")
        if kind == "about":
            self.about = event
        elif kind == "baseline":
            self.checks += event["checks"]
            self.failed |= event["failed"]
        elif kind == "mutants":
            self.count = event["count"]
        elif kind == "left out":
            self.left_out += event["count"]
        elif kind == "unsteady":
            self.unsteady = event["checks"]
        elif kind == "changed":
            self.changed = event["files"]
        else:
            self.rows.append(event)

    @property
    def complete(self) -> bool:
        """Whether there is a verdict on every mutant."""
        return self.count is not None and len(self.rows) == self.count

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        place = {name: number for number, name in enumerate(SENTENCES)}
        rows = sorted(
            self.rows, key=lambda row: (row["module"], row["line"], place[row["rule"]], row["change"])
        )
        return {
            "schema": SCHEMA,
            **self.about,
            "options": dict(self.options),
            "checks": self.checks,
            "failed": sorted(self.failed),
            "unsteady": self.unsteady,
            "left_out": self.left_out,
            "rules": by_rule(rows),
            "rate": rate(rows),
            "mutants": rows,
        }


def by_rule(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the number of mutants for each rule and outcome, in the order of the rules."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        counts.setdefault(row["rule"], dict.fromkeys(OUTCOMES, 0))[row["outcome"]] += 1
    return {name: counts[name] for name in SENTENCES if name in counts}


def rate(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Return killed / (killed + survived), None without either: equivalents and broken ones do not count."""
    outcomes = [row["outcome"] for row in rows]
    killed, survived = outcomes.count("killed"), outcomes.count("survived")
    return killed / (killed + survived) if killed + survived else None


def percent(value: float | None) -> str:
    """Return a rate as text, rounded down: 94.96 % has not reached 95 %."""
    return "none" if value is None else f"{int(value * 1000) / 10:.1f} %"


def table(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the table of rules, with a line of totals."""
    total = {outcome: sum(row[outcome] for row in counts.values()) for outcome in OUTCOMES}
    lines = [f"{'rule':<11} {'killed':>7} {'survived':>9} {'equivalent':>11} {'broken':>7}   what differs"]
    for name, row in [*counts.items(), ("all", total)]:
        killed, survived, equivalent, broken = (row[outcome] for outcome in OUTCOMES)
        sentence = SENTENCES.get(name, "")
        lines.append(
            f"{name:<11} {killed:>7} {survived:>9} {equivalent:>11} {broken:>7}   {sentence}".rstrip()
        )
    return lines


def survivors(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the survivors: place, rule, why, and the changed lines."""
    lines = []
    for row in rows:
        if row["outcome"] == "survived":
            lines.append(f"{row['module']}:{row['line']}: {row['function']}: {row['rule']}: {row['note']}")
            lines += [f"    {line}" for line in row["change"]]
    return lines
