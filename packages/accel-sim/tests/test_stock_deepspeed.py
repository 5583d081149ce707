# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed, without accel's bridge, trains on the simulated NPU by its own NPU accelerator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import accel_sim

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_zero_stages_give_the_losses_of_plain_cpu(ranks):
    pytest.importorskip("deepspeed")
    base = {**os.environ, "ACCEL_BRIDGE": "0", "DS_ACCELERATOR": "npu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={ranks}", str(Path(__file__).with_name("stock_deepspeed.py"))],
        env=accel_sim.environment("npu", base=base), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"accelerator"')]
    assert lines, done.stderr[-3000:]
    answer = json.loads(lines[-1])
    assert answer["accelerator"] == "deepspeed.accelerator.npu_accelerator.NPU_Accelerator"
    expected = answer["losses"].pop("plain")
    assert expected[-1] < expected[0]
    for stage, losses in answer["losses"].items():
        assert losses == pytest.approx(expected, abs=1e-6), stage
