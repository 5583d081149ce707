# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The tables of what works on which accelerator, made of results of accel-testkit and of the packages' op tables.

python -m ci.feature_matrix record suite.json engine.json    keep what runs with --results showed, and write the pages
python -m ci.feature_matrix compare suite.json engine.json   does a run show what is kept? exits with 1 if not
python -m ci.feature_matrix write                            write the pages, and the tables in the hardware pages

Why: pytest reports one run; these pages keep the runs of eight devices, and compare a new run with what was kept.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ci import evidence, workspace
from ci.printed import renewed, table
from ci.problem import Problem, report
from ci.workspace import Package

KEPT = Path("docs/results/conformance")
CONFORMANCE, IMPLEMENTATIONS = Path("docs/results/conformance.md"), Path("docs/results/implementations.md")
SUITE = "packages/accel-testkit/src/accel_testkit/suite"
#: The builders of stock DeepSpeed, for the table of implementations.
UPSTREAM_OPS = Path("ci/upstream_ops.toml")
SCHEMA = 1
PASSED, FAILED = "passed", "failed"
#: Begins the outcome of a check that does not apply; its reason follows.
SKIPPED = "skipped: "
#: The page with the table of packages, whose generated part is between these lines.
HARDWARE = Path("docs/vendors")
PACKAGES = HARDWARE / "README.md"
BEGIN, END = "<!-- conformance: generated -->", "<!-- conformance: end -->"
#: The lines around the section *Known limits* of a hardware page.
LIMITS = "<!-- limits: generated -->", "<!-- limits: end -->"
#: Traits that are the machine's, not the package's.
_OF_THE_MACHINE = {"bf16", "fp16"}
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
release lacks it; the reasons are in [Declared](#declared). *skipped: reason*: the check does not apply. *not run*:
nothing is known.
"""
_ENGINE = """\
## DeepSpeed's engine

`deepspeed.initialize` in each configuration, on one rank and on two. The figure is the largest difference of a loss
(they are between 1 and 5) from the same training in plain PyTorch on the CPU. *same bits*: the losses are those of
DeepSpeed's own CPU accelerator to the last bit, on one rank and on two. A figure is missing where DeepSpeed itself
trains differently from plain PyTorch on every accelerator ([why](../deepspeed-issues.md#numbers)); *same bits* is
missing where the optimizer is the accelerator's own op.
"""
_IMPLEMENTATIONS = """\
# Implementations

What computes each op on each accelerator. `load()` takes the first that works there, and `accel ops build` shows
which it is and why the ones before it are not; `accel ops list` shows what to expect. Under it, in italics, is what
stock DeepSpeed {release} has for that accelerator. Made by `python -m ci.feature_matrix write` from the builders'
`implementations()` and `ci/upstream_ops.toml`; do not edit.

This is what the packages contain, not what was run on a device: for that see
[device kernels](../device-kernels.md#what-was-run) and [ops](../ops.md).
"""


@dataclass
class Results:
    """What was run of one accelerator, kept as one small file.

    checks:  check of the suite -> `passed`, `failed`, the trait by which it was skipped, or `skipped: reason`.
    engine:  configuration -> its `outcome`, alike; the largest `difference` of a loss from plain PyTorch on the
             CPU; whether all losses are `identical` to DeepSpeed's on a CPU, None where that was not compared.
    traits:  all that the vendor declares, and the reasons of what was skipped.
    date, commit: when it was recorded, and on which commit.
    """

    key: str
    accelerator: str
    simulated: bool
    versions: dict[str, str]
    traits: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    engine: dict[str, dict[str, Any]] = field(default_factory=dict)
    date: str = ""
    commit: str = ""


# ------------------------------------------------------------------------------------------------ results of runs


def load(root: Path) -> list[Results]:
    """What is kept, in order of key."""
    files = sorted((root / KEPT).glob("*.json"))
    return [Results(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def condense(documents: Iterable[Mapping[str, Any]]) -> Results:
    """The results of the runs of one accelerator. Raises Problem when they are of several, or none."""
    documents = list(documents)
    about = {(d["schema"], d["key"], d["accelerator"], d["simulated"]) for d in documents}
    if len(about) != 1 or any(schema != SCHEMA or not key for schema, key, *_ in about):
        raise Problem(
            what="these results do not belong together",
            found="; ".join(sorted(map(str, about))) or "no results",
            expected=f"one accelerator, run by its key, schema {SCHEMA}",
            do="give the files of runs with the same --accel KEY, on the same kind of device",
        )
    ((_, label, accelerator, simulated),) = about
    # A package is run by its key; of several variants the run took the one that is there.
    key = label.partition(" ")[0]
    versions = {n: documents[0]["versions"][n].partition("+")[0] for n in ("python", "torch", "deepspeed")}
    found = Results(key, accelerator, simulated, versions)
    for document in documents:
        found.traits |= document["traits"]
        for row in document["checks"]:
            _add(found, row)
    return found


def _add(found: Results, row: Mapping[str, Any]) -> None:
    outcome = row["outcome"]
    if outcome == "skipped":
        outcome = row["trait"] or f"{SKIPPED}{row['reason']}"
    if row["trait"]:
        found.traits.setdefault(row["trait"], row["reason"])
    file, _, name = row["id"].partition(".")
    if file != "engine":
        found.checks[row["id"]] = outcome
        return
    configuration = name.partition("[")[2].removesuffix("]").replace("-", " ")
    fresh = {"outcome": PASSED, "difference": None, "identical": None}
    engine = found.engine.setdefault(configuration, fresh)
    # The worst of its checks: a failure, else a trait.
    if FAILED in (outcome, engine["outcome"]):
        engine["outcome"] = FAILED
    elif outcome != PASSED:
        engine["outcome"] = outcome
    figures = row.get("figures", {})
    if "identical" in figures:
        engine["identical"] = figures["identical"] and engine["identical"] is not False
    elif "difference" in figures:
        engine["difference"] = max(float(f"{figures['difference']:.1e}"), engine["difference"] or 0.0)


def record(root: Path, new: Results) -> None:
    """Keep a run, over what was kept of the accelerator before: a run of the suite leaves the engine's results."""
    old = _kept(root, new.key)
    if old is not None:
        new.checks, new.engine = new.checks or old.checks, new.engine or old.engine
        # What the vendor no longer declares is forgotten, unless a kept outcome has it for its reason.
        reasons = {*new.checks.values(), *(each["outcome"] for each in new.engine.values())}
        new.traits |= {n: reason for n, reason in old.traits.items() if n in reasons and n not in new.traits}
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    new.commit = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.strip()
    new.date = datetime.now(timezone.utc).date().isoformat()
    file = root / KEPT / f"{new.key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    # Sorted, so that a new run changes the lines of what has changed.
    file.write_text(json.dumps(asdict(new), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def differences(root: Path, new: Results, partial: bool = False) -> list[Problem]:
    """What is kept of the accelerator and not shown by this run, and the reverse; partial: of the checks that ran."""
    claimed, shown = _outcomes(_kept(root, new.key)), _outcomes(new)
    # A run of the suite says nothing about the engine, and the reverse.
    kinds = {name.partition(" ")[0] for name in shown}
    names = set(shown) if partial else {*shown, *(n for n in claimed if n.partition(" ")[0] in kinds)}
    wrong = [
        f"{name}: {claimed.get(name, 'not kept')}, now {shown.get(name, 'not run')}"
        for name in sorted(names)
        if not _agree(claimed.get(name, ""), shown.get(name, ""))
    ]
    if not wrong:
        return []
    problem = Problem(
        what=f"{KEPT}/{new.key}.json is not what this run showed",
        found="; ".join(wrong),
        expected="the same outcomes",
        do="correct what failed, or `python -m ci.feature_matrix record` the results and commit them",
    )
    return [problem]


def _kept(root: Path, key: str) -> Results | None:
    return next((kept for kept in load(root) if kept.key == key), None)


def _agree(claimed: str, shown: str) -> bool:
    """True where the outcomes are equal, or differ by a type that one processor has and another lacks."""
    if PASSED not in (claimed, shown):
        return claimed == shown
    other = shown if claimed == PASSED else claimed
    return other in {PASSED, *_OF_THE_MACHINE} or other.startswith(f"{SKIPPED}the device has no ")


def _outcomes(found: Results | None) -> dict[str, str]:
    if found is None:
        return {}
    engine = {f"engine {name}": str(about["outcome"]) for name, about in found.engine.items()}
    return {**{f"suite {name}": outcome for name, outcome in found.checks.items()}, **engine}


# ------------------------------------------------------------------------------------------------------- the pages


def written(root: Path) -> Iterator[tuple[Path, str]]:
    """The pages and the text that each should have."""
    kept, packages = load(root), workspace.load(root)
    yield root / CONFORMANCE, conformance(checklist(root), kept)
    yield root / evidence.PAGE, evidence.page(root, kept)
    yield root / IMPLEMENTATIONS, implementations(list(packages), workspace.read_toml(root / UPSTREAM_OPS))
    cells = evidence.cells(root, kept)
    for result in kept:
        hardware = root / HARDWARE / f"{result.key}.md"
        if hardware.is_file():
            device, checks, engine = _counts(result)
            about = f"On a {device} device ({result.date}, commit {result.commit}, {_with(result)})"
            section = f"{about}: conformance checks {checks}; engine configurations {engine}.\n\n"
            text, (begin, end) = hardware.read_text(encoding="utf-8"), LIMITS
            yield hardware, renewed(text, begin, section + evidence.limits(result, cells), end)
    hardware = root / PACKAGES
    yield hardware, in_page(hardware.read_text(encoding="utf-8"), packages.values(), kept)


def checklist(root: Path) -> dict[str, dict[str, str]]:
    """File of the suite -> check -> its sentence, in the order of the files."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((root / SUITE).glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[path.stem.removeprefix("test_")] = {
            node.name.removeprefix("test_"): " ".join((ast.get_docstring(node) or "").split())
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        }
    return found


def conformance(checks: Mapping[str, Mapping[str, str]], results: Sequence[Results]) -> str:
    """The page of each check and each configuration of the engine, accelerator by accelerator."""
    keys = [result.key for result in results]
    summary = [[f"[{r.key}](conformance/{r.key}.json)", *_counts(r), _with(r)] for r in results]
    head = ["accelerator", "device", "checks of the suite", "engine configurations", "with"]
    parts = [_INTRODUCTION, *table(head, summary), "", _LEGEND]
    for file, sentences in checks.items():
        rows = [
            [f"`{check}`: {sentence}", *(_suite(result, f"{file}.{check}") for result in results)]
            for check, sentence in sentences.items()
        ]
        parts += [f"## {file}", "", *table(["check", *keys], rows), ""]
    names = {name for result in results for name in result.engine}
    engine = [[name, *(_engine(result, name) for result in results)] for name in sorted(names)]
    parts += [_ENGINE, *table(["configuration", *keys], engine), ""]
    parts += ["## Declared", "", "What the devices, or these releases, lack by the packages' traits.", ""]
    for result in results:
        rows = [[f"`{name}`", *reason.split(": ", 1)] for name, reason in sorted(result.traits.items())]
        parts += [f"### {result.key}", "", *table(["feature or op", "", "reason"], rows), ""]
    return "\n".join(parts).rstrip("\n") + "\n"


def in_page(text: str, packages: Iterable[Package], results: Sequence[Results]) -> str:
    """The page with its table of packages renewed; raises ValueError where it has no place for it."""
    kept = {result.key: result for result in results}
    rows = []
    for package in packages:
        shown = [cell for key in package.vendors if key in kept for cell in _counts(kept[key])]
        default = ["", _NOT_RUN, _NOT_RUN] if package.vendors else ["", "", ""]
        about = package.project.get("description", "")
        rows.append([f"[{package.name}](../../{package.folder}/README.md)", about, *(shown or default)])
    head = ["package", "what", "device", "conformance checks", "configurations of DeepSpeed's engine"]
    return renewed(text, BEGIN, "\n".join(table(head, rows)), END)


def _with(result: Results) -> str:
    return f"torch {result.versions['torch']}, deepspeed {result.versions['deepspeed']}"


def _counts(result: Results) -> list[str]:
    device = "simulated" if result.simulated else "real"
    engine = [about["outcome"] for about in result.engine.values()]
    return [device, _counted(result.checks.values()), _counted(engine)]


def _counted(outcomes: Iterable[str]) -> str:
    words = {
        PASSED: "{} passed",
        FAILED: "**{} failed**",
        "declared": "{} declared missing",
        SKIPPED: "{} skipped",
    }
    kinds = (SKIPPED if outcome.startswith(SKIPPED) else outcome for outcome in outcomes)
    found = Counter(kind if kind in words else "declared" for kind in kinds)
    if not found:
        return _NOT_RUN
    return ", ".join(
        text.format(found[kind]) for kind, text in words.items() if found[kind] or kind == PASSED
    )


def _suite(result: Results, check: str) -> str:
    found = Counter(outcome for name, outcome in result.checks.items() if name.partition("[")[0] == check)
    if not found:
        return _NOT_RUN
    if set(found) == {PASSED}:
        return PASSED
    skips = sorted(outcome for outcome in found if outcome.startswith(SKIPPED))
    traits = sorted(set(found) - {PASSED, FAILED, *skips})
    parts = [f"{found[PASSED]} of {found.total()} passed"] * (PASSED in found)
    parts += [f"**{found[FAILED]} failed**"] * (FAILED in found) + [f"no: {', '.join(traits)}"] * bool(traits)
    return "; ".join(parts + skips)


def _engine(result: Results, name: str) -> str:
    found = result.engine.get(name)
    if found is None:
        return _NOT_RUN
    if found["outcome"] != PASSED:
        return "**failed**" if found["outcome"] == FAILED else f"no: {found['outcome']}"
    difference = found["difference"]
    words = [] if difference is None else [f"{difference:.1e}" if difference else "0"]
    return ", ".join(words + (["same bits"] if found["identical"] else [])) or PASSED


def implementations(packages: Iterable[str], upstream: Mapping[str, Any]) -> str:
    """The page of what computes each op, beside stock DeepSpeed's own support."""
    from accel_core.op_builder import Implementation
    from accel_core.op_builder.names import ONE_DEVICE, UPSTREAM

    keys = [key for key in sorted(upstream["builders"]) if f"accel-{key}" in packages]
    meanings = [[each.value, each.meaning] for each in Implementation]
    meanings.append(["–", "the op is missing, with the [reason](conformance.md#declared)"])
    rows = []
    for op in (*UPSTREAM, *ONE_DEVICE):
        builders = {key: builder(key, op) for key in keys}
        ours = {
            key: ", ".join(r.value for r in cls.implementations()) if cls else "–"
            for key, cls in builders.items()
        }
        rows.append([f"`{op}`", *(f"{ours[key]}<br>*{_stock(upstream, key, op)}*" for key in keys)])
    faults = [(*name.split("."), fault) for name, fault in upstream["faults"].items()]
    parts = [_IMPLEMENTATIONS.format(release=upstream["release"])]
    parts += [*table(["implementation", "what computes"], meanings), "", *table(["op", *keys], rows), ""]
    parts += [f"## Faults of DeepSpeed {upstream['release']}'s own", ""]
    return "\n".join(parts + [f"- `{op}` on {key} {fault}." for key, op, fault in faults]) + "\n"


def builder(key: str, op: str) -> Any:
    """The class that serves an op on an accelerator; None if it has no such op."""
    ops = importlib.import_module(f"accel_{key}.op_builder").TABLE
    return ops.builder(op, key, {}) if op in ops else None


def _stock(upstream: Mapping[str, Any], key: str, op: str) -> str:
    name = f"{key}.{op}"
    if op in upstream["builders"][key]:
        return "with a fault" if name in upstream["faults"] else "yes"
    return str(upstream["earlier"].get(name, "–"))


# ----------------------------------------------------------------------------------------------------- the program


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.feature_matrix", description="What works on which device."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("record", "compare"):
        actions.add_parser(action).add_argument("results", nargs="+", type=Path, help="files of --results")
    actions.add_parser("write")
    options, root = parser.parse_args(arguments), root or Path.cwd()
    try:
        if options.action != "write":
            new = condense(json.loads(file.read_text(encoding="utf-8")) for file in options.results)
            if options.action == "compare":
                return report(differences(root, new), f"{new.key}: what is kept is what this run showed")
            record(root, new)
    except Problem as problem:
        return report([problem], "")
    for file, text in written(root):
        file.write_text(text, encoding="utf-8")
        print(file.relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
