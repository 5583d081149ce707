# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Race mode names both sides of every race, deferred mode shows its wrong numbers, and neither raises false alarms."""

import ast
import json
from functools import cache
from pathlib import Path

import pytest

from .conftest import MODES

#: Bugs that give the right numbers even when everything is as late as it may be.
SEEN_BY_RACE_MODE_ALONE = {
    "collective_waited_for_on_another_stream",  # a wait carries the transfer out, whichever stream waits
    "freed_memory_taken_by_a_stream_that_did_not_wait",  # operators themselves are not deferred
    "gradient_used_by_a_stream_that_did_not_wait",
    "input_of_a_collective_overwritten_early",  # a collective reads its input when it is started
}
#: Collectives are asynchronous in truth: without a mode, whether one is done by then is chance.
SEEN_BY_CHANCE = {
    "collective_not_waited_for",
    "future_not_waited_for",
    "input_of_a_collective_overwritten_early",
}


PROGRAMS = Path(__file__).with_name("order_programs.py")
SOURCE = PROGRAMS.read_text(encoding="utf-8")


def _functions(decorator):
    return {
        node.name: node
        for node in ast.parse(SOURCE).body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id == decorator for d in node.decorator_list)
    }


BUGS = _functions("racy")
CORRECT = _functions("correct")


def _line(function, mark):
    lines = SOURCE.splitlines()
    (found,) = (n for n in range(function.lineno, function.end_lineno + 1) if lines[n - 1].endswith(mark))
    return f"{PROGRAMS.name}:{found} in {function.name}"


@pytest.fixture(scope="session")
def found(printed):
    """What the racy or correct programs find in a mode."""
    return cache(lambda which, mode: json.loads(printed("npu", PROGRAMS, which, **MODES[mode])[-1]))


@pytest.mark.parametrize("bug", sorted(BUGS.keys() - SEEN_BY_CHANCE))
def test_bug_goes_unseen_without_a_mode(found, bug):
    wrong, right = found("racy", "plain")[bug]
    assert wrong == right


@pytest.mark.parametrize("mode", ["race", "both"])
@pytest.mark.parametrize("bug", BUGS)
def test_race_mode_names_both_sides_of_a_bug(found, bug, mode):
    wrong, right = found("racy", mode)[bug]
    assert "[ACC-708]\n" in str(wrong)
    now, before = wrong.split("unordered with")
    assert _line(BUGS[bug], "# second") in now
    assert _line(BUGS[bug], "# first") in before
    assert right == found("racy", "plain")[bug][1]


@pytest.mark.parametrize("bug", BUGS)
def test_deferred_mode_gives_a_bug_wrong_numbers(found, bug):
    wrong, right = found("racy", "deferred")[bug]
    assert right == found("racy", "plain")[bug][1]
    assert (wrong == right) == (bug in SEEN_BY_RACE_MODE_ALONE)


@pytest.mark.parametrize("mode", ["race", "deferred", "both"])
@pytest.mark.parametrize("program", CORRECT)
def test_ordered_program_is_left_alone(found, program, mode):
    expected = found("correct", "plain")[program]
    assert "Error" not in str(expected)
    assert found("correct", mode)[program] == expected
