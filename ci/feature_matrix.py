# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages of what works on which accelerator, of packages and of commands.

python -m ci.feature_matrix record suite.json engine.json    keep what runs with --results showed, and write the pages
python -m ci.feature_matrix compare suite.json engine.json   does a run show what is kept? exits with 1 if not
python -m ci.feature_matrix write                            write the pages

Why: pytest reports one run; these pages keep the runs of ten devices, and compare a new run with what was kept.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_core.cli.main import available
from accel_core.env import VARIABLES
from accel_core.op_builder import Implementation
from accel_core.op_builder.names import ONE_DEVICE, UPSTREAM
from ci import workspace
from ci.conformance import FAILED, PASSED, SKIPPED, Results, condense, differences, load, record
from ci.pages import page, renewed
from ci.program import report

SUITE = "packages/accel-testkit/src/accel_testkit/suite"
#: What shows each feature.
SHOWN = Path("ci/evidence.toml")
HARDWARE_CI, SIMULATED, MISSING, NOT_RUN = "hardware CI", "simulated", "missing", "not run"
WORDS = {
    HARDWARE_CI: "every run of CI, on the device itself: of these accelerators only the CPU is in CI",
    "hardware once": "a report of `accel verify` from a machine with the device",
    SIMULATED: "on a simulated device: integration, interfaces and numerics, not speed or a driver",
    "emulated": "another machine or driver was imitated, as two hosts on one",
    MISSING: "declared missing, with the reason",
    NOT_RUN: "nothing is known, with the reason where there is one",
}
TRIED = Path("tests/torch_versions/runs.json")


def written(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the pages and the text that each should have."""
    docs, results = root / "docs", load(root)
    keys = [result.key for result in results]
    suites = {
        file: [[f"`{c}`: {s}", *(suite(each, f"{file}.{c}") for each in results)] for c, s in checks.items()]
        for file, checks in checklist(root).items()
    }
    names = sorted({name for result in results for name in result.engine})
    engines = [[name, *(engine(result, name) for result in results)] for name in names]
    data = {"results": results, "keys": keys, "suites": suites, "engines": engines, "counted": counted}
    yield docs / "results/conformance.md", page("conformance", **data)
    features = workspace.read_toml(root / SHOWN)["shown"]
    cells = [[shown(feature, result) for result in results] for feature in features]
    rows = [each for row in cells for each in alike(row)]
    yield docs / "matrix.md", page("matrix", words=WORDS, keys=keys, cells=cells, rows=rows)
    ops = [[f"`{op}`", *(implemented(key, op) for key in keys)] for op in (*UPSTREAM, *ONE_DEVICE)]
    text = page("implementations", keys=keys, rows=ops, meanings=[*Implementation])
    yield docs / "results/implementations.md", text
    yield docs / "cli.md", page("cli", parsers=parsers())
    yield docs / "environment.md", page("environment", variables=VARIABLES)
    text = (docs / "versions.md").read_text(encoding="utf-8")
    text = renewed(text, "packages", page("packages", packages=workspace.load(root)))
    tried = json.loads((root / TRIED).read_text(encoding="utf-8"))["rows"]
    parts = list(dict.fromkeys(name for row in tried for name in row["parts"]))
    yield docs / "versions.md", renewed(text, "tried", page("tried", rows=tried, parts=parts))


def parsers() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield each sub-command of `accel` with the package that has it and its parser; actions of one follow it."""
    os.environ["COLUMNS"] = "110"
    for name, source in sorted(available()[0].items()):
        parser = argparse.ArgumentParser(prog=f"accel {name}")
        source.attach(parser)
        parser._actions[0].help = argparse.SUPPRESS  # --help itself
        yield name, source.package, parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner, nested in action.choices.items():
                    nested._actions[0].help = argparse.SUPPRESS
                    yield f"{name} {inner}", source.package, nested


def implemented(key: str, op: str) -> str:
    """Return what can compute an op on an accelerator."""
    ops = importlib.import_module(f"accel_{key}.op_builder").TABLE
    return ", ".join(each.value for each in ops.builder(op, key, {}).implementations()) if op in ops else "–"


# ------------------------------------------------------------------------------------------------------ conformance


def checklist(root: Path) -> dict[str, dict[str, str]]:
    """Return {file of the suite: {check: its sentence}}, in the order of the files."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((root / SUITE).glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[path.stem.removeprefix("test_")] = {
            node.name.removeprefix("test_"): " ".join((ast.get_docstring(node) or "").split())
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        }
    return found


def _kind(outcome: str) -> str:
    if outcome in (PASSED, FAILED):
        return outcome
    return "skipped" if outcome.startswith(SKIPPED) else "declared missing"


def counted(outcomes: Iterable[str]) -> str:
    """Return how many checks passed, failed, are declared missing or were skipped."""
    return ", ".join(f"{n} {kind}" for kind, n in Counter(map(_kind, outcomes)).most_common()) or NOT_RUN


def _text(outcome: str) -> str:
    return {FAILED: "**failed**", "declared missing": f"no: {outcome}"}.get(_kind(outcome), outcome)


def suite(result: Results, check: str) -> str:
    """Return what a check showed in its variants."""
    found = [outcome for name, outcome in result.checks.items() if name.partition("[")[0] == check]
    if len(set(found)) < 2:
        return "".join(map(_text, set(found))) or NOT_RUN
    return f"{counted(found)}: {', '.join(sorted(set(found) - {PASSED, FAILED}))}".removesuffix(": ")


def engine(result: Results, name: str) -> str:
    """Return what a configuration of the engine showed."""
    found = result.engine.get(name)
    if found is None or found["outcome"] != PASSED:
        return _text(found["outcome"]) if found else NOT_RUN
    difference = [] if found["difference"] is None else [f"{found['difference']:.1e}".replace("0.0e+00", "0")]
    return ", ".join(difference + ["same bits"] * bool(found["identical"])) or PASSED


# ------------------------------------------------------------------------------------------------------- the matrix


def shown(row: Mapping[str, Any], result: Results) -> tuple[str, ...]:
    """Return a feature on an accelerator: the evidence, what was shown or why not, when, with what, and how."""
    feature, key, versions = row["feature"], result.key, result.versions
    about = ", ".join(f"{name} {versions[name]}" for name in ("python", "torch", "deepspeed"))
    if key in row.get("on", ()):
        if "programs" in row:
            how = ("[programs](results/programs.md)", "", "`python -m benchmarks.programs`")
        else:
            how = ("each run of CI", about, f"`python -m pytest {row['by']}`")
        return feature, key, row["on"][key], row["what"], *how
    if "on" in row:
        return feature, key, NOT_RUN, row["otherwise"], "", "", ""
    kind = "engine" if "engine" in row else "suite"
    names = {name: outcome for name, outcome in result.outcomes().items() if re.search(row[kind], name)}
    outcomes = [outcome for outcome in names.values() if _kind(outcome) != "skipped"]
    # Without the trait some of its checks pass: the code runs.
    outcomes = [row["trait"]] if row.get("trait") in outcomes else outcomes
    declared = sorted({outcome for outcome in outcomes if _kind(outcome) == "declared missing"})
    passed = outcomes.count(PASSED)
    parts = [f"{passed} of {len(outcomes)} {row['noun']} passed"] if passed or not declared else []
    parts += [f"`{name}` {result.traits.get(name, '')}".strip() for name in declared]
    level = SIMULATED if result.simulated else HARDWARE_CI
    evidence = NOT_RUN if not outcomes else level if passed or not declared else MISSING
    sim = f"accel sim {key} -- " if result.simulated else ""
    command = f"`{sim}python -m pytest --pyargs accel_testkit.{kind} --accel {key}`"
    what = "; ".join(parts) if outcomes else ""
    return feature, key, evidence, what, result.recorded.get(kind, ""), about, command


def alike(cells: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a feature with the accelerators of equal ones in one row; KEY is theirs in the command."""
    keys: dict[tuple[str, ...], list[str]] = {}
    for feature, key, *rest, command in cells:
        keys.setdefault((feature, *rest, re.sub(rf"(?<= ){key}\b", "KEY", command)), []).append(key)
    for (feature, *rest, command), found in keys.items():
        yield feature, ", ".join(found), *rest, command.replace("KEY", found[0] if len(found) == 1 else "KEY")


# ----------------------------------------------------------------------------------------------------- the program


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.feature_matrix", description="What works where.")
    parser.add_argument("action", choices=("record", "compare", "write"))
    parser.add_argument("results", nargs="*", type=Path, help="files of --results")
    options, root = parser.parse_args(arguments), root or Path.cwd()
    if options.action != "write":
        new = condense(json.loads(file.read_text(encoding="utf-8")) for file in options.results)
        if options.action == "compare":
            return report(differences(root, new), f"{new.key}: what is kept is what this run showed")
        record(root, new)
    for file, text in written(root):
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
