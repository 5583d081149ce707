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

from .quantized import PLAIN, QUANTIZED, STEPS, WEIGHTS

pytestmark = [pytest.mark.upstream, pytest.mark.slow]

#: Largest difference of the loss at the end, as part of that of the plain run.
TOLERANCE = 0.01
DEVICES = 2  # of a node
#: A guard against a hang, in seconds.
LIMIT = 500.0


@pytest.mark.parametrize(
    ("key", "dtype", "kind", "nodes"),
    [
        ("cpu", "bf16", WEIGHTS, 1),
        ("xpu", "bf16", QUANTIZED, 2),
        ("cuda", "fp16", QUANTIZED, 2),
        ("npu", "fp16", QUANTIZED, 2),
    ],
)
def test_quantized_training_ends_at_the_loss_of_plain_training(
    tmp_path: Path, key: str, dtype: str, kind: str, nodes: int
) -> None:
    ours = ("ACCEL_S", "DS_ACCELERATOR", "MASTER_", "RANK", "LOCAL_", "WORLD_")
    base = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    base["PYTHONPATH"] = str(Path(__file__).parents[1])  # of the job
    if key != "cpu":
        build.library()
        base = accel_sim.environment(key, base=base, devices=DEVICES)
    order = {"runs": [[dtype, PLAIN], [dtype, kind]], "steps": STEPS}
    launcher = RankLauncher(named(key, ""), tmp_path)
    answers = launcher.run("together.quantized", nodes * DEVICES, order, base, LIMIT, nodes=nodes)
    assert not any("error" in answer for answer in answers), answers
    assert answers[0][f"{dtype} {kind}"] == pytest.approx(answers[0][f"{dtype} {PLAIN}"], rel=TOLERANCE)
