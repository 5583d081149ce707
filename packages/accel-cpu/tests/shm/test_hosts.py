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


@pytest.mark.parametrize(
    ("victim", "phase"),
    [(2, "within"), (2, "between"), (2, "after"), (3, "within"), (3, "after"), (0, "between")],
)
def test_survivors_of_a_rank_that_is_killed_name_it_or_its_host(victim: int, phase: str) -> None:
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


def test_hosts_that_reduce_different_tensors_raise_on_all_ranks() -> None:
    for report in jobs.run(several.differs, 4, TWO_AND_TWO, [10, 10, 11, 11], backend="gloo"):
        assert report.value.startswith("CollectiveMismatch"), report


def test_different_tensors_of_ranks_of_one_host_are_named_there_and_end_the_other_host() -> None:
    reports = jobs.run(several.differs, 4, TWO_AND_TWO, [10, 11, 10, 10], backend="gloo")
    for report in reports[:2]:
        assert report.value.startswith("CollectiveMismatch"), report
        assert all(f"all_reduce (sum) of {size} bytes" in report.value for size in (40, 44)), report
    for report in reports[2:]:
        assert report.value.startswith("CollectiveFailed"), report
