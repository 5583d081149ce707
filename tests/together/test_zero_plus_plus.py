# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed trains with ZeRO++, on simulated nodes of two devices and on the CPU, to the loss without it."""

import os
from pathlib import Path

import pytest

import accel_sim
from accel_sim import build
from accel_testkit.suite.launch import RankLauncher
from accel_testkit.suite.target import named

from .quantized import PLAIN, QUANTIZED, STEPS, TRUNCATED, WEIGHTS

pytestmark = pytest.mark.upstream

#: Largest difference of the loss at the end, as part of that of the plain run.
TOLERANCE = 0.01
NODES, DEVICES = 2, 2
#: A guard against a hang, in seconds.
LIMIT = 500.0


def losses(folder: Path, key: str, dtype: str, *kinds: str, nodes: int = NODES) -> dict[str, float | None]:
    """Each run's loss at the end, on nodes of two processes each."""
    ours = ("ACCEL_S", "DS_ACCELERATOR", "MASTER_", "RANK", "LOCAL_", "WORLD_")
    base = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    base["PYTHONPATH"] = str(Path(__file__).parents[1])  # of the job
    if key != "cpu":
        build.library()
        base = accel_sim.environment(key, base=base, devices=DEVICES)
    answers = RankLauncher(named(key, ""), folder).run(
        "together.quantized",
        nodes * DEVICES,
        {"runs": [[dtype, kind] for kind in kinds], "steps": STEPS},
        base,
        LIMIT,
        nodes=nodes,
    )
    assert not any("error" in answer for answer in answers), answers
    found = {kind: answers[0][f"{dtype} {kind}"] for kind in kinds}
    assert not any(isinstance(value, str) for value in found.values()), found
    return found


def apart(found: dict[str, float | None], kind: str) -> float:
    plain, other = found[PLAIN], found[kind]
    assert plain is not None
    assert other is not None
    return abs(other - plain) / plain


def test_quantized_training_ends_at_the_loss_of_plain_training(tmp_path: Path) -> None:
    found = losses(tmp_path, "xpu", "bf16", PLAIN, QUANTIZED)
    assert apart(found, QUANTIZED) < TOLERANCE, found


@pytest.mark.slow
def test_quantized_weights_on_two_cpu_ranks_end_at_the_loss_of_plain_training(tmp_path: Path) -> None:
    found = losses(tmp_path, "cpu", "bf16", PLAIN, WEIGHTS, nodes=1)
    assert apart(found, WEIGHTS) < TOLERANCE, found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("key", ["xpu", "cuda", "npu"])
def test_quantized_training_ends_at_that_loss_and_a_quantizer_that_truncates_does_not(
    tmp_path: Path, key: str, dtype: str
) -> None:
    found = losses(tmp_path, key, dtype, PLAIN, QUANTIZED, TRUNCATED)
    assert apart(found, QUANTIZED) < TOLERANCE, found
    if found[TRUNCATED] is None:
        pytest.skip("not run: the truncating quantizer, which this DeepSpeed has not")
    assert apart(found, TRUNCATED) > TOLERANCE, found
