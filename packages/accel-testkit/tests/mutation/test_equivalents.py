# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The declared equivalents are about mutants that there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accel_testkit.mutation import equivalents, rules, scope
from accel_testkit.mutation.source import Mutant


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    """The mutants of what vendors derive from."""
    packages = {"accel_core.device", "accel_core.interface", "accel_core.op_builder"}
    return [one for source in scope.sources(scope.Scope(packages=packages)) for one in rules.mutants(source)]


def test_every_entry_is_about_a_mutant(mutants: list[Mutant]) -> None:
    entries = equivalents.load([equivalents.OURS])
    assert entries
    ours = [entry for entry in entries if entry.function.startswith(("*", "accel_core."))]
    unused = [entry for entry in ours if not any(entry.matches(one) for one in mutants)]
    assert not unused


def test_entry_without_a_change_is_about_every_mutant_of_its_function_and_rule(mutants: list[Mutant]) -> None:
    one = next(mutant for mutant in mutants if mutant.rule == "index")
    known = equivalents.Known(one.name, "index", "known", "so")
    assert equivalents.about(one, [known]) is known
    others = [mutant for mutant in mutants if mutant.name == one.name and mutant.rule != "index"]
    assert others
    assert not any(equivalents.about(mutant, [known]) for mutant in others)


def test_entry_with_a_change_is_about_that_mutant_alone(mutants: list[Mutant], tmp_path: Path) -> None:
    first, second = [mutant for mutant in mutants if mutant.rule == "index"][:2]
    entry = {
        "function": first.name,
        "rule": "index",
        "change": list(equivalents.change(first)),
        "kind": "known",
        "reason": "so",
    }
    file = tmp_path / "known.json"
    file.write_text(json.dumps([entry]))
    (known,) = equivalents.load([file])
    assert known.matches(first)
    assert not known.matches(second)
