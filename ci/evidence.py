# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The compatibility matrix, and the section *Known limits* of each hardware page: what was shown, and how.

A part of `python -m ci.feature_matrix write`. Sources: the kept runs of the suite and the engine, the programs' losses,
reports of `accel verify` from real devices, and ci/evidence.toml for what only tests show.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci import workspace
from ci.printed import table

if TYPE_CHECKING:
    from ci.feature_matrix import Results

PAGE = Path("docs/matrix.md")
TESTS, PROGRAMS = Path("ci/evidence.toml"), Path("docs/results/programs.json")
#: Reports of `accel verify` on real devices, as their users have sent them.
REPORTS = Path("docs/results/verify")
HARDWARE_CI, HARDWARE_ONCE, SIMULATED = "hardware CI", "hardware once", "simulated"
EMULATED, MISSING, NOT_RUN = "emulated", "missing", "not run"
WORDS = {
    HARDWARE_CI: "every run of CI, on the device itself: of these accelerators only the CPU is in CI",
    HARDWARE_ONCE: "a report of `accel verify` from a machine with the device",
    SIMULATED: "on a simulated device: integration, interfaces and numerics, not speed or a driver",
    EMULATED: "another machine or driver was imitated, as two hosts on one",
    MISSING: "declared missing, with the reason",
    NOT_RUN: "nothing is known, with the reason where there is one",
}
#: Feature -> a pattern of the engine's configurations that show it.
_ENGINE = {
    **{f"ZeRO {stage}": rf"stage {stage}(?! (offload|parameter))" for stage in range(4)},
    "Optimizer offload": r"stage \d offload",
    "Parameter offload": "parameter offload",
    "bf16": "^bf16 ",
    "fp16": "^fp16 ",
    "Checkpoints on other ranks": " moved$",
}
#: Feature -> rows of the page of programs.
_PROGRAMS = {
    "torch.compile": ("torch.compile, eager", "torch.compile, aot_eager"),
    "Tensor parallel (torch)": ("tensor parallel",),
    "FSDP2": ("FSDP2",),
    "Pipeline parallel": ("DeepSpeed pipeline",),
    "Mixture of experts": ("DeepSpeed MoE",),
    "Ulysses": ("DeepSpeed Ulysses",),
}
_INTRODUCTION = """\
# Compatibility matrix

What was shown of each feature, on each accelerator, and how. Made by `python -m ci.feature_matrix write` from result
files; do not edit.
**A simulated device shows integration, interfaces and numerics. Nothing was run on a vendor's hardware yet.**
Each check alone is in [Conformance](results/conformance.md), and what computes each op in
[Implementations](results/implementations.md).
"""
_CELLS = """\
## Every cell

One row for each feature and accelerator. With JavaScript the lists above the table filter it. `accel sim` is part of
accel-sim, and `accel_testkit` of accel-testkit.
"""


@dataclass(frozen=True)
class Cell:
    """One feature on one accelerator."""

    feature: str
    key: str
    evidence: str
    what: str = ""
    recorded: str = ""
    versions: str = ""
    command: str = ""


def page(root: Path, results: Sequence[Results]) -> str:
    """The page: the meaning of the words, the matrix, and a row for each of its cells."""
    keys = [result.key for result in results]
    shown = cells(root, results)
    features = list(dict.fromkeys(cell.feature for cell in shown))
    found = {(cell.feature, cell.key): cell for cell in shown}
    matrix = ([feature, *(found[feature, key].evidence for key in keys)] for feature in features)
    head = ["feature", "accelerator", "evidence", "what was shown, or why not", "recorded", "with", "command"]
    lines = [
        _INTRODUCTION,
        *table(["word", "meaning"], WORDS.items()),
        "",
        *table(["feature", *keys], matrix),
        "",
        _CELLS,
        *table(head, (list(vars(cell).values()) for cell in shown)),
    ]
    return "\n".join(lines) + "\n"


def cells(root: Path, results: Sequence[Results]) -> list[Cell]:
    """Each feature on each accelerator."""
    by_feature: dict[str, dict[str, Cell]] = {}
    for cell in (
        *(cell for result in results for cell in _of_result(result)),
        *_of_programs(root, results),
        *_of_tests(root, results),
        *_of_reports(root),
    ):
        by_feature.setdefault(cell.feature, {})[cell.key] = cell
    return [
        row.get(result.key, Cell(feature, result.key, NOT_RUN))
        for feature, row in by_feature.items()
        for result in results
    ]


def _of_result(result: Results) -> Iterator[Cell]:
    level = SIMULATED if result.simulated else HARDWARE_CI
    about = (f"{result.date}, {result.commit}".strip(", "), _versions(result.versions))
    sim = f"accel sim {result.key} -- " if result.simulated else ""
    command = f"`{sim}python -m pytest --pyargs accel_testkit.{{}} --accel {result.key}`"
    for feature, pattern in _ENGINE.items():
        outcomes = [each["outcome"] for name, each in result.engine.items() if re.search(pattern, name)]
        yield _counted(feature, result, level, outcomes, "configurations", *about, command.format("engine"))
    # Without graphs some of their checks pass: the code runs.
    graphs = [outcome for name, outcome in result.checks.items() if name.startswith("graphs.")]
    graphs = ["graphs"] if "graphs" in graphs else graphs
    yield _counted("Graphs", result, level, graphs, "checks", *about, command.format("suite"))


def _counted(
    feature: str, result: Results, level: str, outcomes: Sequence[str], noun: str, *about: str
) -> Cell:
    passed = outcomes.count("passed")
    outcomes = [outcome for outcome in outcomes if not outcome.startswith("skipped: ")]
    traits = sorted(set(outcomes) - {"passed", "failed"})
    reasons = [f"`{name}` {result.traits.get(name, '')}".strip() for name in traits]
    counted = f"{passed} of {len(outcomes)} {noun} passed"
    if passed or not outcomes:
        what = "; ".join([counted, *reasons]) if outcomes else ""
        return Cell(feature, result.key, level if outcomes else NOT_RUN, what, *about)
    return Cell(feature, result.key, MISSING if traits else level, "; ".join(reasons) or counted, *about)


def _of_programs(root: Path, results: Iterable[Results]) -> Iterator[Cell]:
    kept = json.loads((root / PROGRAMS).read_text(encoding="utf-8"))
    rows = {row["program"]: row for row in kept["rows"]}
    about = kept["circumstances"]
    recorded, versions = f"{about['date']}, {about['commit']}", _versions(about)
    for feature, programs in _PROGRAMS.items():
        for result in results:
            answers = [rows[program].get(result.key, "") for program in programs] if rows else []
            if not result.simulated:
                what, command = (
                    "the losses with which those of the others are compared",
                    "`python -m benchmarks.programs`",
                )
                yield Cell(feature, result.key, HARDWARE_CI, what, recorded, versions, command)
            elif answers and all(answers):
                difference = "the CPU's losses to the last bit" if set(answers) == {"equal"} else ""
                what = difference or f"losses differ from the CPU's by {_largest(answers)} of themselves"
                command = "`python -m benchmarks.programs`"
                yield Cell(feature, result.key, SIMULATED, what, recorded, versions, command)
            else:
                yield Cell(feature, result.key, NOT_RUN, "not among the programs that were run")


def _of_tests(root: Path, results: Iterable[Results]) -> Iterator[Cell]:
    for row in workspace.read_toml(root / TESTS)["shown"]:
        for result in results:
            if result.key in row["on"]:
                command = f"`python -m pytest {row['by']}`"
                what, versions = row["what"], _versions(result.versions)
                yield Cell(
                    row["feature"],
                    result.key,
                    row["on"][result.key],
                    what,
                    "each run of CI",
                    versions,
                    command,
                )
            else:
                yield Cell(row["feature"], result.key, NOT_RUN, row["otherwise"])


def _of_reports(root: Path) -> Iterator[Cell]:
    """Reports of real devices: those of a simulated one show nothing that CI does not."""
    for file in sorted((root / REPORTS).glob("*.json")):
        report = json.loads(file.read_text(encoding="utf-8"))
        if report["simulated"]:
            continue
        states = [row["state"] for row in report["rows"]]
        what = f"{states.count('passed')} of {len(states)} steps passed: [report](results/verify/{file.name})"
        command = f"`accel verify --{report['mode']}`"
        versions = _versions(report["versions"])
        yield Cell("accel verify", report["accelerator"], HARDWARE_ONCE, what, "", versions, command)


def _versions(versions: Mapping[str, Any]) -> str:
    names = [name for name in ("python", "torch", "deepspeed") if name in versions]
    return ", ".join(f"{name} {str(versions[name]).partition('+')[0]}" for name in names)


def _largest(answers: list[str]) -> str:
    """Return the largest of the differences, some of which may be `equal`."""
    return max((answer for answer in answers if answer != "equal"), key=float)


def limits(result: Results, shown: Iterable[Cell]) -> str:
    """Return what a package declares missing, on each machine or on some, and what was not run."""
    from accel_core.vendor import Feature, Trait

    missing: dict[tuple[str, str], list[str]] = {}
    for constant, traits in vars(importlib.import_module(f"accel_{result.key}.traits")).items():
        if isinstance(traits, dict) and traits and isinstance(next(iter(traits.values())), Trait):
            where = "always" if constant == "TRAITS" else "on some machines"
            for name, trait in traits.items():
                sentence = f": {name.sentence}" if isinstance(name, Feature) else ""
                missing.setdefault((where, trait.reason), []).append(f"`{name}`{sentence}")
    rows = [["; ".join(names), *where_and_why] for where_and_why, names in sorted(missing.items())]
    unknown: dict[str, list[str]] = {}
    for cell in shown:
        if cell.key == result.key and cell.evidence == NOT_RUN:
            reason = cell.what.replace("docs/", "")
            unknown.setdefault(f" ({reason})" if reason else "", []).append(cell.feature)
    not_run = (
        line for reason, names in unknown.items() for line in ("", f"Not run: {', '.join(names)}{reason}.")
    )
    head = "Made by `python -m ci.feature_matrix write` from the package's traits and the kept runs."
    return "\n".join([head, "", *table(["missing", "where", "why"], rows), *not_run])
