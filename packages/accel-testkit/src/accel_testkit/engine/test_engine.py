# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every configuration trains as plain PyTorch does, and as DeepSpeed does on a CPU, on one rank and on two."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel_testkit.engine.compare import Comparison
from accel_testkit.engine.configurations import MATRIX, STEPS, Configuration
from accel_testkit.engine.runs import RunKey, Runs

pytestmark = pytest.mark.tier("device")


def _each(fits: Callable[[Configuration], bool]) -> pytest.MarkDecorator:
    """One test a configuration; those outside the quick subset are marked."""
    return pytest.mark.parametrize(
        "configuration",
        [
            pytest.param(c, id=c.name.replace(" ", "-"), marks=[] if c.quick else [pytest.mark.whole])
            for c in MATRIX
            if fits(c)
        ],
    )


@_each(lambda c: not c.fault)
def test_one_rank(runs: Runs, comparison: Comparison) -> None:
    """One rank gives the losses of plain PyTorch, and skips the same steps for the same loss scales."""
    comparison.with_plain_torch(runs.answers(RunKey(1)))


@pytest.mark.tier("multi")
@_each(lambda c: not c.fault)
def test_two_ranks(runs: Runs, comparison: Comparison) -> None:
    """Two ranks, each with half of every batch, give the losses of the whole batch."""
    comparison.with_plain_torch(runs.answers(RunKey(2)))


@_each(lambda c: c.same_arithmetic)
def test_one_rank_beside_a_cpu(runs: Runs, comparison: Comparison) -> None:
    """One rank gives the losses of DeepSpeed on a CPU, to the last bit on a plain simulated device."""
    comparison.with_stock(runs.answers(RunKey(1)), runs.answers(RunKey(1, stock=True)))


@pytest.mark.tier("multi")
@_each(lambda c: c.same_arithmetic)
def test_two_ranks_beside_a_cpu(runs: Runs, comparison: Comparison) -> None:
    """Two ranks give the losses of DeepSpeed on two CPU ranks, to the last bit on a plain simulated device."""
    comparison.with_stock(runs.answers(RunKey(2)), runs.answers(RunKey(2, stock=True)))


@pytest.mark.tier("multi")
@_each(lambda c: c.moves)
def test_checkpoint_of_two_ranks_serves_one(runs: Runs, comparison: Comparison) -> None:
    """One rank goes on from a checkpoint of two, with the losses of an uninterrupted training."""
    comparison.with_plain_torch(runs.answers(RunKey(1, origin=2)), first=STEPS // 2)


@pytest.mark.tier("multi")
@_each(lambda c: c.moves)
def test_checkpoint_of_one_rank_serves_two(runs: Runs, comparison: Comparison) -> None:
    """Two ranks go on from a checkpoint of one, with the losses of an uninterrupted training."""
    comparison.with_plain_torch(runs.answers(RunKey(2, origin=1)), first=STEPS // 2)
