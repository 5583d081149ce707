# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kept runs of the conformance suite and of DeepSpeed's engine, one small file an accelerator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ci.program import Problem, git

KEPT = Path("docs/results/conformance")
PASSED, FAILED = "passed", "failed"
#: Begins the outcome of a check that does not apply; its reason follows.
SKIPPED = "skipped: "
#: Traits that are the machine's, not the package's.
_OF_THE_MACHINE = {"bf16", "fp16"}


@dataclass
class Results:
    """Results of the runs of one accelerator.

    checks:  check of the suite -> `passed`, `failed`, the trait by which it was skipped, or `skipped: reason`.
    engine:  configuration -> {"outcome": …, "difference": largest of a loss, "identical": to stock's losses}.
    traits:  what the vendor declares missing -> the reason.
    recorded: `suite` and `engine` -> day and commit.
    """

    key: str
    accelerator: str
    simulated: bool
    versions: dict[str, str]
    traits: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    engine: dict[str, dict[str, Any]] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a check's row as the testkit writes it; of an engine's configuration the worst outcome counts."""
        outcome = row["outcome"]
        if outcome == "skipped":
            outcome = row["trait"] or f"{SKIPPED}{row['reason']}"
        if row["trait"]:
            self.traits.setdefault(row["trait"], row["reason"])
        file, _, name = row["id"].partition(".")
        if file != "engine":
            self.checks[row["id"]] = outcome
            return
        configuration = name.partition("[")[2].removesuffix("]").replace("-", " ")
        found = self.engine.setdefault(
            configuration, {"outcome": PASSED, "difference": None, "identical": None}
        )
        if FAILED in (outcome, found["outcome"]):
            found["outcome"] = FAILED
        elif outcome != PASSED:
            found["outcome"] = outcome
        figures = row.get("figures", {})
        if "identical" in figures:
            found["identical"] = figures["identical"] and found["identical"] is not False
        elif "difference" in figures:
            found["difference"] = max(float(f"{figures['difference']:.1e}"), found["difference"] or 0.0)

    def outcomes(self) -> dict[str, str]:
        """Return the outcomes of suite and engine."""
        engine = {f"engine {name}": str(about["outcome"]) for name, about in self.engine.items()}
        return {**{f"suite {name}": outcome for name, outcome in self.checks.items()}, **engine}


def load(root: Path) -> list[Results]:
    """Return what is kept, in order of key."""
    files = sorted((root / KEPT).glob("*.json"))
    return [Results(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def condense(documents: Iterable[Mapping[str, Any]]) -> Results:
    """Return the results of the runs of one accelerator."""
    documents = list(documents)
    about = {(d["key"], d["accelerator"], d["simulated"]) for d in documents}
    if len(about) != 1 or not all(key for key, *_ in about):
        raise Problem(
            f"these results do not belong together; give runs with the same --accel KEY: {sorted(about)}"
        )
    ((label, accelerator, simulated),) = about
    versions = {n: documents[0]["versions"][n].partition("+")[0] for n in ("python", "torch", "deepspeed")}
    # A package is run by its key; of several variants the run took the one that is there.
    found = Results(label.partition(" ")[0], accelerator, simulated, versions)
    for document in documents:
        found.traits |= document["traits"]
        for row in document["checks"]:
            found.add(row)
    return found


def record(root: Path, new: Results) -> None:
    """Keep a run, over what was kept of the accelerator before: a run of the suite leaves the engine's results."""
    old = kept(root, new.key)
    now = f"{datetime.now(timezone.utc).date()}, {git(root, 'rev-parse', '--short=8', 'HEAD')}"
    ran = {"suite": new.checks, "engine": new.engine}
    new.recorded = old.recorded | {kind: now for kind, found in ran.items() if found}
    new.checks, new.engine = new.checks or old.checks, new.engine or old.engine
    file = root / KEPT / f"{new.key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    # Sorted, so that a new run changes the lines of what has changed.
    file.write_text(json.dumps(asdict(new), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def differences(root: Path, new: Results, partial: bool = False) -> list[Problem]:
    """Return what is kept and not shown by this run, and the reverse; partial: of the checks that ran."""
    claimed, shown = kept(root, new.key).outcomes(), new.outcomes()
    # A run of the suite says nothing about the engine, and the reverse.
    kinds = {name.partition(" ")[0] for name in shown}
    names = set(shown) if partial else {*shown, *(n for n in claimed if n.partition(" ")[0] in kinds)}
    wrong = [
        f"{name}: {claimed.get(name, 'not kept')}, now {shown.get(name, 'not run')}"
        for name in sorted(names)
        if not _agree(claimed.get(name, ""), shown.get(name, ""))
    ]
    do = "correct it, or keep this run by `python -m ci.feature_matrix record`"
    return [Problem(f"this run is not {KEPT}/{new.key}.json; {do}: {'; '.join(wrong)}")] if wrong else []


def kept(root: Path, key: str) -> Results:
    """Return what is kept of an accelerator, empty if nothing is."""
    return next((each for each in load(root) if each.key == key), Results(key, "", False, {}))


def _agree(claimed: str, shown: str) -> bool:
    """True where the outcomes are equal, or differ by a type that one processor has and another lacks."""
    others = {claimed, shown} - {PASSED, *_OF_THE_MACHINE}
    lacks = all(other.startswith(f"{SKIPPED}the device has no ") for other in others)
    return claimed == shown or (PASSED in (claimed, shown) and lacks)
