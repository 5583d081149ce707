# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The section *Known limits* of each hardware page: what a package declares missing, and what was not run.

A part of `python -m ci.feature_matrix write`. Sources: the traits of the package, those of its machine included, the
kept runs, and the cells of the compatibility matrix.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ci.evidence import NOT_RUN, Cell
from ci.printed import renewed, table

if TYPE_CHECKING:
    from accel_core.vendor import Trait
    from ci.feature_matrix import Results

FOLDER = Path("docs/vendors")
BEGIN, END = "<!-- limits: generated -->", "<!-- limits: end -->"


def in_page(text: str, result: Results, cells: Iterable[Cell]) -> str:
    """A hardware page with its section renewed; raises ValueError where it has no place for it."""
    return renewed(text, BEGIN, section(result, cells), END)


def section(result: Results, cells: Iterable[Cell]) -> str:
    """The section's text."""
    always, sometimes = _traits(result.key)
    engine = {name: str(each["outcome"]) for name, each in result.engine.items()}
    kind = "simulated" if result.simulated else "real"
    lines = [
        "This section is made by `python -m ci.feature_matrix write` from the package's traits and the kept runs.",
        "",
        f"On a {kind} device ({result.date}, commit {result.commit}, torch {result.versions['torch']}, DeepSpeed "
        f"{result.versions['deepspeed']}), "
        f"{_counted(result.checks.values(), 'conformance checks')} and "
        f"{_counted(engine.values(), 'engine configurations')}.",
    ]
    features = [*_features(always, "always"), *_features(sometimes, "on some machines")]
    if features:
        lines += ["", *table(["missing", "where", "why"], features)]
    untrained = sorted(name for name, outcome in engine.items() if outcome not in ("passed", "failed"))
    if untrained:
        lines += ["", f"Engine configurations that are not run: {', '.join(untrained)}."]
    for reason, ops in _ops(always).items():
        lines += ["", f"Missing ops ({reason}): {', '.join(f'`{op}`' for op in ops)}."]
    unknown: dict[str, list[str]] = {}
    for cell in cells:
        if cell.key == result.key and cell.evidence == NOT_RUN:
            unknown.setdefault(cell.what.replace("docs/", ""), []).append(cell.feature)
    for reason, names in unknown.items():
        lines += ["", f"Not run: {', '.join(names)}{f' ({reason})' if reason else ''}."]
    return "\n".join(lines)


def _counted(outcomes: Iterable[str], noun: str) -> str:
    found = list(outcomes)
    passed, failed = found.count("passed"), found.count("failed")
    declared = len(found) - passed - failed
    words = [f"{passed} of {len(found)} {noun} passed"]
    words += [f"**{failed} failed**"] if failed else []
    return ", ".join(words + ([f"{declared} are declared missing"] if declared else []))


def _traits(vendor: str) -> tuple[dict[str, Trait], dict[str, Trait]]:
    """The traits of a package: those of every machine, and those that depend on the machine."""
    from accel_core.vendor import Trait

    always: dict[str, Trait] = {}
    sometimes: dict[str, Trait] = {}
    for name, value in vars(importlib.import_module(f"accel_{vendor}.traits")).items():
        if isinstance(value, dict) and value and all(isinstance(each, Trait) for each in value.values()):
            where = always if name == "TRAITS" else sometimes
            for key, trait in value.items():
                others = [where[key].reason] if key in where else []
                where[key] = Trait(trait.support, "; or ".join((*others, trait.reason)))
    return always, sometimes


def _features(traits: Mapping[str, Trait], where: str) -> Iterator[list[str]]:
    from accel_core.vendor import Feature

    for feature in Feature:
        if feature in traits:
            yield [f"`{feature}`: {feature.sentence}", where, traits[feature].reason]


def _ops(traits: Mapping[str, Trait]) -> dict[str, list[str]]:
    """Reason -> ops."""
    found: dict[str, list[str]] = {}
    for name, trait in traits.items():
        if name.endswith("Builder"):
            found.setdefault(trait.reason, []).append(str(name))
    return found
