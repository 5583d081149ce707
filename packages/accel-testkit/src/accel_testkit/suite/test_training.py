# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Drop-in training: `deepspeed.initialize` on this accelerator, beside plain PyTorch on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite import model
from accel_testkit.suite.expect import expect, largest
from accel_testkit.suite.launch import RankLauncher

#: `accel_testkit.engine --quick` trains in less time.
pytestmark = [pytest.mark.tier("device"), pytest.mark.whole]

Answer = dict[str, Any]
#: Relative difference of losses from plain PyTorch on the CPU in float32.
_TOLERANCE = {"fp32": 1e-5, "bf16": 3e-2}
_STAGES = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def alone(launcher: RankLauncher) -> Answer:
    """What one rank found; see accel_testkit.suite.rank.training."""
    return launcher.run("training", ranks=1)[0]


@pytest.fixture(scope="module")
def pair(launcher: RankLauncher) -> list[Answer]:
    """What each of two ranks found."""
    return launcher.run("training", ranks=2)


@pytest.fixture(scope="session")
def plain() -> list[float]:
    """The losses of plain PyTorch on the CPU in float32."""
    return model.train_plain()


def test_deepspeed_chooses_the_accelerator(alone: Answer, accelerator: DeepSpeedAccelerator) -> None:
    """A script that only imports deepspeed trains on this accelerator's devices."""
    found = (alone.get("accelerator"), alone.get("device"))
    expect(
        found == (type(accelerator).__name__, accelerator.device_name()),
        "DeepSpeed trains on another accelerator",
        found=f"{found}; {alone.get('error', '')}",
        expected=f"{type(accelerator).__name__} and tensors on {accelerator.device_name()}",
        do="run `accel doctor` on this machine",
    )


@pytest.mark.parametrize("stage", _STAGES)
def test_losses_are_those_of_plain_torch(alone: Answer, plain: list[float], stage: int) -> None:
    """ZeRO stages 0 to 3 in float32 give the losses of plain PyTorch on the CPU."""
    _expect_losses([alone], f"fp32 stage {stage}", plain)


@pytest.mark.needs("bf16")
def test_bfloat16_trains(alone: Answer, plain: list[float]) -> None:
    """ZeRO-2 in bfloat16 gives those losses within bfloat16's precision."""
    _expect_losses([alone], "bf16 stage 2", plain)


def test_training_goes_on_from_a_checkpoint(alone: Answer, plain: list[float]) -> None:
    """An engine that loads a checkpoint of half the steps ends with the same losses."""
    _expect_losses([alone], "fp32 stage 2 resumed", plain)


@pytest.mark.tier("multi")
@pytest.mark.parametrize("stage", [1, 2, pytest.param(3, marks=pytest.mark.needs("zero3_ranks"))])
def test_two_ranks_train_like_one(pair: list[Answer], plain: list[float], stage: int) -> None:
    """Two ranks, each with half of every batch, give the losses of the whole batch."""
    _expect_losses(pair, f"fp32 stage {stage}", plain)


@pytest.mark.tier("multi")
def test_declared_failure_is_one(pair: list[Answer], plain: list[float], traits: Traits) -> None:
    """Where ZeRO 3 over several ranks is declared missing, two ranks do not train like one."""
    runs = [answer.get("fp32 stage 3") for answer in pair]
    trains = all(isinstance(losses, list) and len(losses) == len(plain) for losses in runs)
    if "zero3_ranks" not in traits or not trains:
        pytest.skip("zero3_ranks is not declared missing, or ZeRO 3 does not run")
    found = [sum(losses) / len(runs) for losses in zip(*runs, strict=True)]
    worst = largest(abs(a - b) / b for a, b in zip(found, plain, strict=True))
    expect(
        worst > _TOLERANCE["fp32"],
        "the trait zero3_ranks declares missing what works",
        found=f"losses of plain PyTorch, within {worst:g}",
        expected="another training, or no such trait",
        do="drop the trait, so that the suite checks ZeRO 3 over ranks",
    )


def _expect_losses(answers: list[Answer], name: str, wanted: list[float]) -> None:
    runs = [answer.get(name) for answer in answers]
    if not all(isinstance(losses, list) and len(losses) == len(wanted) for losses in runs):
        errors = "; ".join(str(answer.get("error") or answer.get(name)) for answer in answers)
        pytest.fail(f"{name} does not train\n{errors}", pytrace=False)
    found = [sum(losses) / len(runs) for losses in zip(*runs, strict=True)]
    worst = largest(abs(a - b) / b for a, b in zip(found, wanted, strict=True))
    tolerance = _TOLERANCE[name.partition(" ")[0]]
    expect(
        worst <= tolerance,
        f"{name} trains differently from plain PyTorch",
        found=f"losses {[round(loss, 6) for loss in found]}, off by {worst:g}",
        expected=f"{[round(loss, 6) for loss in wanted]} within {tolerance:g}",
        do="run the other checks first: what they find usually explains this",
    )
