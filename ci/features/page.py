# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The feature matrix as Markdown, and the table of the README: both say only what results show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ci.features.results import FAILED, PASSED, Results
from ci.workspace import Package

PAGE = "docs/results/conformance.md"
#: The generated part of the README stands between these lines.
BEGIN, END = "<!-- conformance: generated -->", "<!-- conformance: end -->"
_NOT_RUN = "not run"
_INTRODUCTION = """\
# Conformance

What `accel-testkit` found, accelerator by accelerator: a cell says what a run showed, and nothing else.
Made by `python -m ci.feature_matrix write` from the files in [conformance/](conformance); do not edit.

**A simulated device shows wiring, contracts and numerics. It shows nothing about speed or about the vendor's
driver, and none of these packages has met a real device yet, the CPU aside.**
"""
_LEGEND = """\
*passed*: the check, in all its variants. *no: name*: not run, because the vendor declares that its device or this
release lacks it; the reasons stand in [Declared](#declared). *not run*: nothing is known.
"""
_ENGINE = """\
## DeepSpeed's engine

`deepspeed.initialize` in each configuration, on one rank and on two. The figure is the largest difference of a loss
(they are between 1 and 5) from the same training in plain PyTorch on the CPU. *same bits*: the losses are those of
DeepSpeed's own CPU accelerator to the last bit, on one rank and on two. A figure is missing where DeepSpeed itself
trains differently from plain PyTorch on every accelerator ([why](../upstream.md)); *same bits* is missing where the
optimizer is the accelerator's own op.
"""


def page(checklist: Mapping[str, Mapping[str, str]], results: Sequence[Results]) -> str:
    """The whole page."""
    parts = [_INTRODUCTION, *summary(results, "conformance"), "", _LEGEND]
    keys = [result.key for result in results]
    for file, checks in checklist.items():
        rows = [
            [f"`{check}`: {sentence}", *(_suite(result, f"{file}.{check}") for result in results)]
            for check, sentence in checks.items()
        ]
        parts += [f"## {file}", "", *_table(["check", *keys], rows), ""]
    names = sorted({name for result in results for name in result.engine})
    engine = [[name, *(_engine(result, name) for result in results)] for name in names]
    parts += [_ENGINE, *_table(["configuration", *keys], engine), "", *_declared(results)]
    return "\n".join(parts).rstrip("\n") + "\n"


def summary(results: Sequence[Results], folder: str) -> list[str]:
    """One row an accelerator."""
    rows = []
    for result in results:
        versions = f"torch {result.versions['torch']}, deepspeed {result.versions['deepspeed']}"
        rows.append([f"[{result.key}]({folder}/{result.key}.json)", *_cells(result), versions])
    return _table(["accelerator", "device", "checks of the suite", "engine configurations", "with"], rows)


def in_readme(text: str, packages: Iterable[Package], results: Sequence[Results]) -> str:
    """The README with its table of packages renewed; raises ValueError where it has no place for it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines {BEGIN} and {END}")
    kept = {result.key: result for result in results}
    rows = [
        [f"[{package.name}]({package.folder}/README.md)", package.description, *_shown(package, kept)]
        for package in packages
    ]
    head = ["package", "what", "device", "conformance checks", "configurations of DeepSpeed's engine"]
    table = "\n".join(["", "", *_table(head, rows), "", ""])
    return f"{before}{begin}{table}{end}{after}"


def _shown(package: Package, kept: Mapping[str, Results]) -> list[str]:
    """What was run of a vendor's package; nothing for the others, which are no accelerator."""
    results = [kept[key] for key in package.vendors if key in kept]
    if not package.vendors or not results:
        return ["", "", ""] if not package.vendors else ["", _NOT_RUN, _NOT_RUN]
    return [cell for result in results for cell in _cells(result)]


def _cells(result: Results) -> list[str]:
    return [
        "simulated" if result.simulated else "real",
        _counted(result.checks.values()),
        _counted(engine["outcome"] for engine in result.engine.values()),
    ]


def _suite(result: Results, check: str) -> str:
    found = Counter(outcome for name, outcome in result.checks.items() if name.partition("[")[0] == check)
    if not found:
        return _NOT_RUN
    if set(found) == {PASSED}:
        return PASSED
    parts = [f"{found[PASSED]} of {found.total()} passed"] if found[PASSED] else []
    parts += [f"**{found[FAILED]} failed**"] if found[FAILED] else []
    traits = sorted(set(found) - {PASSED, FAILED})
    return "; ".join([*parts, *([f"no: {', '.join(traits)}"] if traits else [])])


def _engine(result: Results, name: str) -> str:
    found = result.engine.get(name)
    if found is None:
        return _NOT_RUN
    if found["outcome"] == FAILED:
        return "**failed**"
    if found["outcome"] != PASSED:
        return f"no: {found['outcome']}"
    words = (
        [] if found["difference"] is None else [f"{found['difference']:.1e}" if found["difference"] else "0"]
    )
    words += ["same bits"] if found["identical"] else []
    return ", ".join(words) or PASSED


def _counted(outcomes: Iterable[str]) -> str:
    found = Counter(outcome if outcome in (PASSED, FAILED) else "declared" for outcome in outcomes)
    if not found:
        return _NOT_RUN
    words = [f"{found[PASSED]} passed"]
    words += [f"**{found[FAILED]} failed**"] if found[FAILED] else []
    return ", ".join(words + ([f"{found['declared']} declared missing"] if found["declared"] else []))


def _declared(results: Sequence[Results]) -> list[str]:
    lines = ["## Declared", "", "What the packages say that their devices, or these releases, lack.", ""]
    for result in results:
        rows = [[f"`{name}`", *reason.split(": ", 1)] for name, reason in sorted(result.traits.items())]
        lines += [f"### {result.key}", "", *_table(["feature or op", "", "reason"], rows), ""]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
