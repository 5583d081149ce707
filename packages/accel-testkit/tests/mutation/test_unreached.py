# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is behind the failure of a function that has only failed has no mutants, and neither has what it alone reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from accel_testkit.mutation import rules
from accel_testkit.mutation.source import Source
from accel_testkit.mutation.unreached import Unreached

TEXT = """
_ARGUMENTS = ("first", "second")
_BOTH = ("third", "fourth")


def driver():
    library = load("libdriver.so")
    library.start(_ARGUMENTS, _BOTH)
    return library


def used():
    return bool(_BOTH)
"""
LOADING, STARTING, RETURNING, USED = 7, 8, 9, 13
DRIVER, USES = 6, 12


def left(executed: set[int], offered: set[tuple[str, int]] | None = None) -> set[str]:
    """Names of the functions and tables, and of lines in them, that still have mutants."""
    source = Source(Path("toy.py"), "toy", TEXT)
    names = {"driver", "used", "_ARGUMENTS", "_BOTH"}
    beyond = Unreached.of(source, executed, names, offered or set())
    mutants = [mutant for mutant in rules.mutants(source) if not beyond.has(mutant)]
    return {mutant.function if mutant.table else f"{mutant.function} {mutant.first}" for mutant in mutants}


def test_failure_is_the_end() -> None:
    assert left({LOADING, USED, -USES}) == {f"driver {LOADING}", f"used {USED}", "_BOTH"}


@pytest.mark.parametrize(
    ("executed", "offered"),
    [
        ({LOADING, STARTING, RETURNING, -DRIVER}, set()),
        ({LOADING}, {("toy.py", DRIVER)}),
        ({LOADING, -DRIVER}, set()),
    ],
    ids=["it works", "the accelerator offers it", "it returned early"],
)
def test_what_can_be_reached_stays(executed: set[int], offered: set[tuple[str, int]]) -> None:
    names = {f"driver {LOADING}", f"driver {STARTING}", "_ARGUMENTS", "_BOTH"}
    assert names <= left({*executed, USED, -USES}, offered)
