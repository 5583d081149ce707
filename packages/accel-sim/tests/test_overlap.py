# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's overlap paths on two ranks: no race, and the same losses however late everything is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import accel_sim

pytest.importorskip("deepspeed")
PROGRAM = Path(__file__).with_name("overlapping_streams.py")
MODES = {"plain": {}, "race": {"race": True}, "deferred": {"deferred": True}}


@cache
def losses(mode: str, which: str) -> list[dict[str, list[float]]]:
    """The losses of both ranks, in an order of their own."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
    ]
    done = subprocess.run(
        [*command, str(PROGRAM), which],
        env=accel_sim.environment("npu", base={**os.environ, "OMP_NUM_THREADS": "1"}, **MODES[mode]),
        capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"losses"')]
    assert len(lines) == 2
    return [json.loads(line)["losses"] for line in sorted(lines)]


@pytest.mark.parametrize("mode", ["race", "deferred"])
@pytest.mark.parametrize("which", ["quick", pytest.param("whole", marks=pytest.mark.slow)])
def test_overlapping_collectives_and_copies_are_ordered(mode: str, which: str) -> None:
    expected = losses("plain", which)
    assert len(expected[0]) >= 4
    assert losses(mode, which) == expected
