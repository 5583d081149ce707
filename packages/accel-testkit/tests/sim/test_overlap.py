# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's overlap paths, on two ranks of the simulated NPU: ordered, and right when everything is late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from accel_testkit import sim

pytestmark = pytest.mark.upstream

MODES = {"plain": {}, "race": {"race": True}, "deferred": {"deferred": True}}


@pytest.fixture(scope="session")
def losses():
    """Losses of rank 0 by configuration, in a mode."""
    pytest.importorskip("deepspeed")

    @cache
    def run(mode, subset):
        base = {**os.environ, "ACCEL_BRIDGE": "0", "DS_ACCELERATOR": "npu", "OMP_NUM_THREADS": "1"}
        program = [str(Path(__file__).with_name("overlapping.py")), subset]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *program],
            env=sim.environment("npu", base=base, **MODES[mode]), capture_output=True, text=True, check=False, timeout=550,
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"losses"')]
        assert lines, done.stderr[-5000:]
        return json.loads(lines[0])["losses"]

    return run


@pytest.mark.parametrize("subset", ["quick", pytest.param("whole", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["race", "deferred"])
def test_overlap_is_ordered_and_gives_the_same_losses(losses, mode, subset):
    expected = losses("plain", subset)
    assert expected
    assert all(values[-1] < 0.8 * values[0] for values in expected.values())
    assert losses(mode, subset) == expected
