# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of ops for devices runs: its part for GPUs on a simulated one, of which the figures mean nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import accel_sim
from benchmarks import device

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_part_for_gpus_has_a_row_for_each_goal() -> None:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("ACCEL_S", "DS_ACC"))}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.device", "--try"],
        env=accel_sim.environment("cuda", base=base), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    goals = [line.split(" | ")[3] for line in done.stdout.splitlines()[2:]]
    assert goals == [
        ">= 85 %", "<= 1.03 of upstream's time",
        *2 * [">= 75 %", ">= 8 times", "<= 1.05 of upstream's time"],
        "< 0.1 s from a cubin", "<= 8 µs",
    ]  # fmt: skip


def test_page_without_a_gpu_says_so_and_why() -> None:
    data = {
        "gpu": {"lack": "no device"}, "text": "Medians.", "rows": [{"function": "quantize", "ms": 1.5}],
        "circumstances": {"machine": "m"},
    }  # fmt: skip
    assert "## On a GPU\n\n*Not run*: no device." in device.page(data)
    measured = {"rows": [{"measured": "copy"}], "circumstances": {"machine": "g"}}
    page = device.page(data | {"gpu": measured})
    assert "Not run" not in page
    assert "Measured on: machine g." in page
