# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of ops for devices runs: its part for GPUs on a simulated one, of which the figures mean nothing."""

from pathlib import Path

import pytest

from shared.children import on_device


@pytest.mark.slow
def test_part_for_gpus_has_a_row_for_each_goal() -> None:
    root = Path(__file__).parents[2]
    done = on_device("cuda", "-m", "benchmarks.device", "--try", PYTHONPATH=str(root))
    goals = [line.split(" | ")[3] for line in done.out.splitlines()[2:]]
    assert goals == [
        ">= 85 %", "<= 1.03 of upstream's time",
        *2 * [">= 75 %", ">= 8 times", "<= 1.05 of upstream's time"],
        "< 0.1 s from a cubin", "<= 8 µs",
    ]  # fmt: skip
