# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rehearsed rank requests as many bytes as a real one on the simulator, where every kernel computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import accel_sim

pytest.importorskip("deepspeed")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.more, pytest.mark.upstream]

PROGRAM = Path(__file__).with_name("configurations.py")
#: A tensor without dimensions that a work of the collectives still holds, which a real rank has not waited for.
SCALAR = 4
#: Memory behind a piece that is too small to be a piece of its own; the simulator has no pieces.
UNSPLIT = 0.05
DOZEN = (
    "gpt, ZeRO 0, fp32", "gpt, ZeRO 0, bf16", "gpt, ZeRO 1, fp16", "gpt, ZeRO 2, bf16", "gpt, ZeRO 2, accumulation",
    "llama, ZeRO 2, checkpointing", "ZeRO 2, optimizer on the host", "llama, ZeRO 3, bf16",
    "llama, ZeRO 3, checkpointing", "ZeRO 3, zero.Init", "ZeRO 3, everything on the host",
    "ZeRO++, quantized gradients",
)  # fmt: skip


def real(ranks: int, out: Path, *names: str) -> dict[str, Any]:
    """Return the peaks of rank 0 of a job on the simulator."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
         str(PROGRAM), str(out), *names],
        env=accel_sim.environment("npu", devices=ranks, base={**os.environ, "OMP_NUM_THREADS": "1"}),
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    peaks: dict[str, Any] = json.loads(out.read_text())
    return peaks


def rehearsed(ranks: int, out: Path, *names: str) -> dict[str, Any]:
    """Return the peaks of a rehearsed rank 0."""
    done = subprocess.run(
        [sys.executable, "-m", "accel_core.cli", "rehearse", "npu", "--memory=16GiB", f"--ranks={ranks}", "--rank=0",
         "--steps=1000", "--computed-steps", "--", str(PROGRAM), str(out), *names],
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    peaks: dict[str, Any] = json.loads(out.read_text())
    return peaks


@pytest.mark.parametrize(
    ("ranks", "names"), [(2, DOZEN), *(pytest.param(ranks, (), marks=pytest.mark.slow) for ranks in (2, 4))]
)
def test_a_rehearsed_rank_requests_what_a_real_one_does(
    tmp_path: Path, ranks: int, names: tuple[str, ...]
) -> None:
    expected = real(ranks, tmp_path / "real.json", *names)
    found = rehearsed(ranks, tmp_path / "rehearsed.json", *names)
    assert len(expected) >= (len(names) or 60)
    assert found.keys() == expected.keys()
    for name, peaks in expected.items():
        assert found[name]["requested"] == pytest.approx(peaks["requested"], abs=SCALAR, rel=0), name
        assert found[name]["allocated"] == pytest.approx(peaks["allocated"], rel=UNSPLIT), name
