# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on the simulated NPU: its overlap paths have no race, and stock DeepSpeed trains as on the CPU."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .conftest import MODES, TORCHRUN, simulate

pytest.importorskip("deepspeed")
configurations = pytest.importorskip(
    "accel_testkit.engine.configurations", reason="not run: package accel-testkit"
)
PROGRAM = Path(__file__).with_name("overlapping_streams.py")


def run(which: str, ranks: int, mode: str = "plain", **variables: str) -> list[dict[str, Any]]:
    """Run the program under torchrun; return what its ranks print, in any order."""
    done = simulate("npu", *TORCHRUN, ranks, PROGRAM, which, env=variables, timeout=1800, **MODES[mode])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in sorted(done.stdout.splitlines()) if line.startswith('{"')]


@cache
def losses(mode: str, which: str) -> list[dict[str, Any]]:
    return run(which, 2, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["race", "deferred"])
@pytest.mark.parametrize("which", ["quick", "whole"])
def test_overlapping_collectives_and_copies_are_ordered(mode: str, which: str) -> None:
    expected = losses("plain", which)
    assert len(expected) == 2
    assert len(expected[0]["losses"]) >= 4
    assert losses(mode, which) == expected


@pytest.mark.upstream
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_zero_stages_of_stock_deepspeed_give_the_losses_of_plain_cpu(ranks: int) -> None:
    from accel_testkit.engine import reference

    answers = run("stock", ranks, ACCEL_BRIDGE="0", DS_ACCELERATOR="npu")
    kinds = {answer["accelerator"] for answer in answers}
    assert kinds == {"deepspeed.accelerator.npu_accelerator.NPU_Accelerator"}
    for stage in range(4):
        (plain,) = (each for each in configurations.MATRIX if each.name == f"fp32 stage {stage}")
        expected = reference.of(plain, ranks)["losses"]
        assert expected[-1] < expected[0]
        steps = zip(*(answer["losses"][plain.name] for answer in answers), strict=True)
        assert [sum(step) / ranks for step in steps] == pytest.approx(expected, abs=1e-6), stage
