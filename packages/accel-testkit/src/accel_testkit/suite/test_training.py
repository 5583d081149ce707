# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Drop-in training: some configurations of `accel_testkit.engine`, compared with plain PyTorch on the CPU."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from accel_core.vendor import Traits
from accel_testkit.engine.compare import Comparison
from accel_testkit.engine.configurations import MATRIX
from accel_testkit.engine.rank import Order
from accel_testkit.engine.runs import Answers
from accel_testkit.suite.expect import expect
from accel_testkit.suite.launch import LIMIT, RankLauncher
from accel_testkit.suite.target import Target

#: `accel_testkit.engine --quick` trains in less time.
pytestmark = [pytest.mark.tier("device"), pytest.mark.whole]

_STAGES = [f"fp32 stage {stage}" for stage in range(4)]
_BF16, _RESUMED = "bf16 stage 2", "fp32 stage 2 resumed"


def _trained(
    launcher: RankLauncher, ranks: int, names: list[str], factory: pytest.TempPathFactory
) -> Answers:
    order = Order(names, str(factory.mktemp("checkpoints")))
    return launcher.run("accel_testkit.engine.rank", ranks, asdict(order), limit=2 * LIMIT)


@pytest.fixture(scope="module")
def alone(launcher: RankLauncher, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The results of one rank."""
    return _trained(launcher, 1, [*_STAGES, _BF16, _RESUMED], tmp_path_factory)


@pytest.fixture(scope="module")
def pair(launcher: RankLauncher, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The results of each of two ranks."""
    return _trained(launcher, 2, _STAGES[1:], tmp_path_factory)


def _comparison(name: str) -> Comparison:
    (configuration,) = (each for each in MATRIX if each.name == name)
    return Comparison(configuration, None, False, lambda figures: None)


def test_deepspeed_chooses_the_accelerator(alone: Answers, target: Target) -> None:
    """A script that only imports deepspeed trains on this accelerator's devices."""
    found, wanted = alone[0].get("accelerator"), target.accelerator.replace(":", ".")
    expect(
        found == wanted,
        "DeepSpeed trains on another accelerator",
        found=f"{found}; {alone[0].get('error', '')}",
        expected=wanted,
        do="run `accel doctor` on this machine",
    )


@pytest.mark.parametrize("stage", range(4))
def test_losses_are_those_of_plain_torch(alone: Answers, stage: int) -> None:
    """ZeRO stages 0 to 3 in float32 give the losses of plain PyTorch on the CPU."""
    _comparison(_STAGES[stage]).with_plain_torch(alone)


@pytest.mark.needs("bf16")
def test_bfloat16_trains(alone: Answers) -> None:
    """ZeRO-2 in bfloat16 gives those losses within bfloat16's precision."""
    _comparison(_BF16).with_plain_torch(alone)


def test_training_goes_on_from_a_checkpoint(alone: Answers) -> None:
    """An engine that loads a checkpoint of half the steps ends with the same losses."""
    _comparison(_RESUMED).with_plain_torch(alone)


@pytest.mark.tier("multi")
@pytest.mark.parametrize("stage", [1, 2, pytest.param(3, marks=pytest.mark.needs("zero3_ranks"))])
def test_two_ranks_train_like_one(pair: Answers, stage: int) -> None:
    """Two ranks, each with half of every batch, give the losses of the whole batch."""
    _comparison(_STAGES[stage]).with_plain_torch(pair)


@pytest.mark.tier("multi")
def test_declared_failure_is_one(pair: Answers, traits: Traits) -> None:
    """Where ZeRO 3 over several ranks is declared missing, two ranks do not train like one."""
    if "zero3_ranks" not in traits or not all(isinstance(answer.get(_STAGES[3]), dict) for answer in pair):
        pytest.skip("zero3_ranks is not declared missing, or ZeRO 3 does not run")
    trained = True
    try:
        _comparison(_STAGES[3]).with_plain_torch(pair)
    except pytest.fail.Exception:
        trained = False
    expect(
        not trained,
        "the trait zero3_ranks declares missing what works",
        found="losses of plain PyTorch",
        expected="another training, or no such trait",
        do="drop the trait, so that the suite checks ZeRO 3 over ranks",
    )
