# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks on several hosts, which are simulated on one: the results are gloo's, and a lost host is named."""

import pytest
import shm_jobs as jobs
import shm_several as several

TWO_AND_TWO = (0, 0, 1, 1)
#: Seconds within which survivors raise, far from the group's timeout of 60.
SOON = 30.0


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [(TWO_AND_TWO, "2 + 2"), ((0, 0, 0, 1, 1), "3 + 2"), ((0, 1, 0, 1), "2 + 2"), ((0, 0, 1), "2 + 1")],
    ids=lambda value: "".join(map(str, value)),
)
def test_collectives_of_several_hosts_give_gloos_results_and_the_same_bits_on_all_ranks(
    hosts: tuple[int, ...], reason: str
) -> None:
    for report in jobs.run(several.collectives, len(hosts), hosts, backend="gloo"):
        assert not report.error, report.error
        assert report.value == (f"shared memory of {reason} processes on 2 hosts", [])


@pytest.mark.parametrize("phase", ["within", "second part", "after"])
@pytest.mark.parametrize("victim", [2, 3])
def test_survivors_of_a_rank_that_is_killed_name_it_or_its_host(victim: int, phase: str) -> None:
    _survivors_name(victim, phase)


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_of_a_leader_that_is_killed_between_the_hosts_name_its_host(victim: int) -> None:
    _survivors_name(victim, "between")


def _survivors_name(victim: int, phase: str) -> None:
    reports = jobs.run(several.loses, 4, TWO_AND_TWO, victim, phase, backend="gloo")
    for rank, report in enumerate(reports):
        if rank == victim:
            assert report.lost
            continue
        text = f"{report.value}{report.error}"
        assert "CollectiveFailed" in text
        beside = TWO_AND_TWO[rank] == TWO_AND_TWO[victim]
        named = f"rank {victim} has ended" if beside else f"the host of rank {victim // 2 * 2} was lost"
        assert named in text
        assert report.seconds < SOON


@pytest.mark.parametrize(
    "shapes",
    [
        [(10,), (10,), (11,), (11,)],
        [(10,), (11,), (10,), (10,)],
        [(1200, 1000), (1000, 1200), (1200, 1000), (1200, 1000)],  # several parts, equal but for their shape
        [(1_200_000,), (1_300_000,), (1_200_000,), (1_200_000,)],
    ],
    ids=["between hosts", "within a host", "shape", "size"],
)
def test_ranks_that_reduce_different_tensors_all_raise(shapes: list[tuple[int, ...]]) -> None:
    mismatch = "CollectiveMismatch"
    others = mismatch if shapes[0] == shapes[1] else "CollectiveFailed"  # whose host does what it does alike
    reports = jobs.run(several.differs, 4, TWO_AND_TWO, shapes, backend="gloo")
    assert [report.value for report in reports] == [mismatch, mismatch, others, others]
