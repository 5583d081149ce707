# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A send and a receive of different tensors are an error on both ranks, which changes no tensor."""

import pytest
import shm_jobs as jobs
import transfers

#: Seconds for all pairs: far from the group's timeout of 60.
SOON = 30.0


@pytest.mark.parametrize("problem", ["", "planted"], ids=["memory", "gloo"])
@pytest.mark.parametrize("how", ["", "at once", "batch", "from any"])
def test_different_tensors_raise_on_both_ranks(how: str, problem: str) -> None:
    for rank, found in enumerate(jobs.values(transfers.differ, 2, how, problem)):
        assert found.keys() == transfers.PAIRS.keys()
        for name, (error, same, next_error, seconds) in found.items():
            assert error.startswith("CollectiveMismatch"), (rank, name, error)
            for side, tensor in zip(("rank 0 sends", "rank 1 receives"), transfers.PAIRS[name], strict=True):
                assert f"{side} {tensor.numel()} elements of {tensor.dtype}" in error
            assert same, (rank, name)
            assert next_error == error
            assert seconds < SOON


def test_other_ranks_learn_which_tensors_differed() -> None:
    for rank, said in enumerate(jobs.values(transfers.third, 3)):
        assert said.startswith("CollectiveMismatch"), said
        assert "rank 1 receives 8 elements" in said
        assert said.count("\nCollective") == 1, (rank, said)


def test_same_tensors_in_any_order() -> None:
    for found in jobs.values(transfers.alike, 2):
        assert found == [6.0] * 5 + [1.0, 500_000.0, 3.0] * 2 + [2.0, True, True]
