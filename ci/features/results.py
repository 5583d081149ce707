# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Results of accel-testkit (`--results`), condensed to what the documents show: one small file an accelerator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ci.problem import CheckError, Problem

FOLDER = "docs/results/conformance"
SCHEMA = 1
PASSED, FAILED = "passed", "failed"
_ENGINE = "engine"
_VERSIONS = ("python", "torch", "deepspeed")


@dataclass
class Results:
    """What was run of one accelerator.

    checks:  check of the suite -> `passed`, `failed`, or the name of the trait by which it was skipped.
    engine:  configuration -> its `outcome`, alike; the largest `difference` of a loss from plain PyTorch on the
             CPU; whether all losses are `identical` to DeepSpeed's on a CPU, None where that was not compared.
    traits:  all that the vendor declares, and the reasons of what was skipped.
    """

    key: str
    accelerator: str
    simulated: bool
    versions: dict[str, str]
    traits: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    engine: dict[str, dict[str, Any]] = field(default_factory=dict)


def condense(documents: Iterable[Mapping[str, Any]]) -> Results:
    """The results of the runs of one accelerator. Raises CheckError when they are of several, or none."""
    documents = list(documents)
    about = {(d["schema"], d["key"], d["accelerator"], d["simulated"]) for d in documents}
    if len(about) != 1 or any(schema != SCHEMA or not key for schema, key, *_ in about):
        raise CheckError(
            Problem(
                what="these results do not belong together",
                found="; ".join(sorted(map(str, about))) or "no results",
                expected=f"one accelerator, run by its key, schema {SCHEMA}",
                do="give the files of runs with the same --accel KEY, on the same kind of device",
            )
        )
    ((_, label, accelerator, simulated),) = about
    # A package is run by its key; of several variants the run took the one that is there.
    key = label.partition(" ")[0]
    versions = {name: documents[0]["versions"][name].partition("+")[0] for name in _VERSIONS}
    found = Results(key, accelerator, simulated, versions)
    for document in documents:
        found.traits |= document["traits"]
        for row in document["checks"]:
            _add(found, row)
    return found


def _add(found: Results, row: Mapping[str, Any]) -> None:
    outcome = row["trait"] if row["outcome"] == "skipped" else row["outcome"]
    if row["trait"]:
        found.traits.setdefault(row["trait"], row["reason"])
    file, _, name = row["id"].partition(".")
    if file != _ENGINE:
        found.checks[row["id"]] = outcome
        return
    configuration = name.partition("[")[2].removesuffix("]").replace("-", " ")
    fresh = {"outcome": PASSED, "difference": None, "identical": None}
    engine = found.engine.setdefault(configuration, fresh)
    # The worst of its checks: a failure, else a trait.
    if FAILED not in (outcome, engine["outcome"]):
        engine["outcome"] = outcome if outcome != PASSED else engine["outcome"]
    else:
        engine["outcome"] = FAILED
    figures = row.get("figures", {})
    if "identical" in figures:
        engine["identical"] = figures["identical"] and engine["identical"] is not False
    elif "difference" in figures:
        engine["difference"] = max(float(f"{figures['difference']:.1e}"), engine["difference"] or 0.0)


def merged(old: Results | None, new: Results) -> Results:
    """The new run laid over what is kept: a run of the suite alone leaves the engine's results."""
    if old is None:
        return new
    return Results(
        new.key,
        new.accelerator,
        new.simulated,
        new.versions,
        new.traits | {name: reason for name, reason in old.traits.items() if name not in new.traits},
        new.checks or old.checks,
        new.engine or old.engine,
    )


def text(results: Results) -> str:
    """The file's text: sorted, so that a new run changes the lines of what has changed."""
    return json.dumps(asdict(results), indent=1, sort_keys=True) + "\n"


def load(root: Path) -> list[Results]:
    """What is kept, in order of key."""
    files = sorted((root / FOLDER).glob("*.json"))
    return [Results(**json.loads(file.read_text(encoding="utf-8"))) for file in files]
