# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Groups that are left, aborted or forked, and calls from signal handlers and threads: no hang, no crash."""

from __future__ import annotations

from typing import Any

import pytest
import shm_ends as ends
import shm_jobs as jobs


def _values(function: Any, ranks: int, *arguments: Any) -> list[Any]:
    reports = jobs.run(function, ranks, *arguments)
    for report in reports:
        assert not report.error, report.error
        assert not report.lost
    return [report.value for report in reports]


def test_a_rank_that_has_left_a_group_is_named_and_the_error_stays_the_same() -> None:
    said, _ = _values(ends.left, 2)
    assert "rank 1 has left the process group" in said[0]
    assert said[0] == said[1]


def test_a_rank_may_leave_as_soon_as_its_own_last_call_is_done() -> None:
    assert _values(ends.left_early, 3, 10) == [3.0] * 3


def test_a_group_with_a_call_that_nobody_answers_can_be_destroyed() -> None:
    said, _ = _values(ends.destroyed_while_pending, 2)
    assert "rank 1 has left" in said


def test_abort_ends_a_wait_on_all_ranks_and_gives_the_memory_back() -> None:
    (first, kept), (second, _) = _values(ends.aborted, 2)
    assert "rank 0 was interrupted" in first
    assert "rank 0 was interrupted" in second
    assert kept == 0


def test_two_threads_may_call_one_group() -> None:
    assert _values(ends.from_two_threads, 2) == [[400.0, 1.0]] * 2


def test_a_collective_in_a_signal_handler_is_refused_and_the_one_it_interrupted_goes_on() -> None:
    (outer, within, after), _ = _values(ends.handler_calls, 2)
    assert (outer, after) == ("", "")
    assert "cannot begin within another one" in within


def test_a_signal_handler_can_destroy_the_group_in_which_its_rank_waits() -> None:
    first, second = _values(ends.handler_destroys, 2)
    assert first.startswith("SystemExit")
    assert "rank 0 was interrupted" in second


@pytest.mark.parametrize("call", [0, 1], ids=["asynchronous", "synchronous"])
def test_a_child_of_a_rank_whose_thread_is_waiting_is_refused(call: int) -> None:
    for said in _values(ends.forked, 2):
        assert "forked after the group was made" in said[call]
