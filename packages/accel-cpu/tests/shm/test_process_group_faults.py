# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A lost rank, a different call, a fork, Ctrl-C: an error that names the rank, in seconds, on every other rank."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import shm_faults as ranks_of
import shm_jobs as jobs

#: Seconds within which survivors raise: on a busy machine more than a few, and far from the group's timeout of 60.
SOON = 20.0


def _survivors(reports: list[Any], victim: int) -> list[Any]:
    assert not reports[victim].error or reports[victim].lost
    return [report for rank, report in enumerate(reports) if rank != victim]


def test_survivors_of_a_killed_rank_raise_soon_and_name_it() -> None:
    for survivor in _survivors(jobs.run(ranks_of.lost, 3, 1, int(signal.SIGKILL), 0.5), victim=1):
        assert "CollectiveFailed" in survivor.error
        assert "rank 1 has ended" in survivor.error
        assert survivor.seconds < 0.5 + SOON


def test_a_rank_that_is_stopped_by_a_signal_is_named() -> None:
    reports = jobs.run(ranks_of.lost, 2, 0, int(signal.SIGSTOP), 0.5, absent=1)
    for survivor in _survivors(reports, victim=0):
        assert "rank 0 has been stopped" in survivor.error
        assert survivor.seconds < 0.5 + SOON


def test_a_rank_that_does_not_come_is_named_after_the_groups_timeout() -> None:
    report, _ = jobs.run(ranks_of.waits_for_nobody, 2)
    assert "rank 1 did not arrive within 5 s" in report.error


@pytest.mark.parametrize(
    ("what", "other", "named"),
    [
        ("float32", "bfloat16", "bfloat16"),
        ("float32", "complex64", "192 bytes"),
        ("float32", "larger", "120 bytes"),
        ("float32", "transposed", "shape"),
        ("float32", "max", "(max)"),
        ("float32", "broadcast", "broadcast"),
        ("broadcast", "root", "root 1"),
        ("float32", "barrier", "barrier"),
        ("float32", "reduce", "shape 0x1"),
        ("float32", "by gloo", "barrier"),
        ("float32", "asynchronous", "float64"),
    ],
)
def test_different_calls_are_an_error_on_every_rank_that_shows_both(
    what: str, other: str, named: str
) -> None:
    reports = jobs.run(ranks_of.differ, 3, what, other)
    for report in reports:
        assert "CollectiveMismatch" in report.error, report
        assert report.seconds < SOON
    assert "rank 2" in reports[0].error
    assert named in reports[0].error


def test_parts_of_an_all_to_all_that_do_not_fit_are_an_error_on_both_ranks() -> None:
    for report in jobs.run(ranks_of.uneven, 2):
        assert "CollectiveMismatch" in report.error
        assert report.seconds < SOON


def test_a_group_that_has_failed_fails_again_and_never_computes() -> None:
    for report in jobs.run(ranks_of.after_a_failure, 2):
        first, second = report.value
        assert first.startswith("CollectiveMismatch")
        assert first == second


def test_a_forked_child_is_refused_and_its_parent_goes_on() -> None:
    for report in jobs.run(ranks_of.forked, 2):
        assert not report.error, report.error
        assert "forked after the group was made" in report.value


def test_ctrl_c_interrupts_a_rank_that_waits_and_the_others_are_told_which() -> None:
    first, second = jobs.run(ranks_of.interrupted, 2)
    assert first.value.startswith("KeyboardInterrupt")
    assert "rank 0 was interrupted" in second.value


def test_nothing_is_in_dev_shm_while_a_group_works_or_after_it() -> None:
    before = sorted(path.name for path in Path("/dev/shm").iterdir())
    for report in jobs.run(ranks_of.traces, 2):
        assert not [name for name in report.value if name not in before and "accel" in name]


def test_all_groups_together_stay_within_32_mib() -> None:
    for report in jobs.run(ranks_of.memory, 2, 8):
        assert not report.error, report.error
        assert 8 << 20 < max(report.value) <= 32 << 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_storm_of_ranks_killed_at_random_times(seed: int) -> None:
    reports = jobs.run(ranks_of.lost_at_random, 2 + seed % 3, seed)
    assert sum(report.lost for report in reports) == 1
    for report in reports:
        assert report.lost or ("has ended" in report.error and report.seconds < SOON + 0.3), report
