# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Race mode names both sides of every race, deferred mode shows its wrong numbers, and neither raises false alarms."""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import accel_sim

HERE = Path(__file__).parent
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
MODES = {"plain": {}, "race": {"race": True}, "deferred": {"deferred": True}}
MODES["both"] = {**MODES["race"], **MODES["deferred"]}


def _functions(name, decorator):
    tree = ast.parse((HERE / name).read_text(encoding="utf-8"))
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id == decorator for d in node.decorator_list)
    }


BUGS = _functions("racy_programs.py", "racy")
CORRECT = _functions("correct_programs.py", "correct")


def _line(function, mark):
    lines = (HERE / "racy_programs.py").read_text(encoding="utf-8").splitlines()
    (found,) = (n for n in range(function.lineno, function.end_lineno + 1) if lines[n - 1].endswith(mark))
    return f"racy_programs.py:{found} in {function.name}"


@pytest.fixture(scope="session")
def found():
    """What the programs of a file find in a mode."""

    @cache
    def run(file, mode):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(HERE / file)],
            env=accel_sim.environment("npu", base={**os.environ, "OMP_NUM_THREADS": "1"}, **MODES[mode]),
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("bug", sorted(BUGS.keys() - SEEN_BY_CHANCE))
def test_bug_goes_unseen_without_a_mode(found, bug):
    wrong, right = found("racy_programs.py", "plain")[bug]
    assert wrong == right


@pytest.mark.parametrize("mode", ["race", "both"])
@pytest.mark.parametrize("bug", BUGS)
def test_race_mode_names_both_sides_of_a_bug(found, bug, mode):
    wrong, right = found("racy_programs.py", mode)[bug]
    assert str(wrong).startswith("DataRace: [ACC-708]")
    now, before = wrong.split("unordered with")
    assert _line(BUGS[bug], "# second") in now
    assert _line(BUGS[bug], "# first") in before
    assert right == found("racy_programs.py", "plain")[bug][1]


@pytest.mark.parametrize("bug", BUGS)
def test_deferred_mode_gives_a_bug_wrong_numbers(found, bug):
    wrong, right = found("racy_programs.py", "deferred")[bug]
    assert right == found("racy_programs.py", "plain")[bug][1]
    assert (wrong == right) == (bug in SEEN_BY_RACE_MODE_ALONE)


@pytest.mark.parametrize("mode", ["race", "deferred", "both"])
@pytest.mark.parametrize("program", CORRECT)
def test_ordered_program_is_left_alone(found, program, mode):
    expected = found("correct_programs.py", "plain")[program]
    assert "Error" not in str(expected)
    assert found("correct_programs.py", mode)[program] == expected


BLOCK = """
import torch, torch_npu
from accel_sim import current, execution_modes

there, here = torch.ones(4, device="npu"), torch.zeros(4, pin_memory=True)
simulation = current()
for _ in range(2):
    here.zero_()
    with execution_modes.deferred(simulation.native, simulation.settings):
        there.add_(1)
        here.copy_(there, non_blocking=True)
        print(here.tolist())
    print(here.tolist())
here.zero_()
here.copy_(there, non_blocking=True)
print(here.tolist())
"""


def test_deferred_mode_can_be_switched_on_for_a_block():
    environment = accel_sim.environment("npu", base={**os.environ, "OMP_NUM_THREADS": "1"})
    command = [sys.executable, "-W", "ignore", "-c", BLOCK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    printed = [json.loads(line)[0] for line in done.stdout.splitlines()]
    assert printed == [0, 2, 0, 3, 3]


@pytest.mark.parametrize(
    ("key", "runtime", "total"), [("hpu", "habana_frameworks.torch", 28.0), ("npu", "torch_npu", 0.0)]
)
def test_hpu_alone_orders_work_of_two_streams_on_the_same_memory(python, key, runtime, total):
    source = f"""
import torch
from {runtime} import {key} as module
source, target = torch.full((4,), 7.0).pin_memory("{key}"), torch.zeros(4, device="{key}")
module.synchronize()
with module.stream(module.Stream()):
    target.copy_(source, non_blocking=True)
print(target.sum().item())
"""
    done = python(key, source, deferred=True)
    assert done.stdout.split() == [str(total)], done.stderr
