# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on the simulated NPU: its overlap paths have no race, and stock DeepSpeed trains as on the CPU."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import accel_sim

pytest.importorskip("deepspeed")
MODES = {"plain": {}, "race": {"race": True}, "deferred": {"deferred": True}}


def run(program: str, *words: str, ranks: int, mode: str = "plain", **variables: str) -> list[dict[str, Any]]:
    """Run a program of this folder under torchrun; return what its ranks print, in any order."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
         str(Path(__file__).with_name(program)), *words],
        env=accel_sim.environment("npu", base={**os.environ, "OMP_NUM_THREADS": "1", **variables}, **MODES[mode]),
        capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in sorted(done.stdout.splitlines()) if line.startswith('{"')]


@cache
def losses(mode: str, which: str) -> list[dict[str, Any]]:
    return run("overlapping_streams.py", which, ranks=2, mode=mode)


@pytest.mark.parametrize("mode", ["race", "deferred"])
@pytest.mark.parametrize("which", ["quick", pytest.param("whole", marks=pytest.mark.slow)])
def test_overlapping_collectives_and_copies_are_ordered(mode: str, which: str) -> None:
    expected = losses("plain", which)
    assert len(expected) == 2
    assert len(expected[0]["losses"]) >= 4
    assert losses(mode, which) == expected


@pytest.mark.upstream
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_zero_stages_of_stock_deepspeed_give_the_losses_of_plain_cpu(ranks: int) -> None:
    (answer,) = run("stock_deepspeed.py", ranks=ranks, ACCEL_BRIDGE="0", DS_ACCELERATOR="npu")
    assert answer["accelerator"] == "deepspeed.accelerator.npu_accelerator.NPU_Accelerator"
    expected = answer["losses"].pop("plain")
    assert expected[-1] < expected[0]
    for stage, found in answer["losses"].items():
        assert found == pytest.approx(expected, abs=1e-6), stage
