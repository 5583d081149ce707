# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Results of the shared-memory collectives: those of gloo where it is exact, and of float64 within one rounding."""

from __future__ import annotations

from collections import Counter

import pytest
import shm_calls
import shm_jobs as jobs
import shm_random


def _done(ranks: int, seed: int, count: int, largest: int, limit: float = jobs.LIMIT) -> Counter[str]:
    """Make random calls and return how often each function was called, and compared with gloo."""
    reports = jobs.run(shm_random.calls, ranks, seed, count, largest, limit=limit)
    for report in reports:
        assert not report.error, report.error
        assert not report.lost
    done = sum((report.value for report in reports), Counter[str]())
    assert sum(done.values()) - done["as gloo"] == count
    print(ranks, "ranks:", *sorted(done.items()))
    return done


@pytest.mark.parametrize("ranks", [2, 3])
def test_results_are_right_for_every_function_type_operation_size_and_stride(ranks: int) -> None:
    done = _done(ranks, seed=1, count=150, largest=20_000)
    assert {function.__name__ for function in shm_random.FUNCTIONS} <= set(done)
    assert done["as gloo"] > 10


def test_tensors_larger_than_the_shared_memory_go_through_it_in_pieces() -> None:
    _done(2, seed=2, count=12, largest=4 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", range(2, 9))
def test_results_of_thousands_of_random_calls_of_up_to_16_mi_elements(ranks: int) -> None:
    _done(ranks, seed=ranks, count=320, largest=16 << 20, limit=1800.0)


def test_tensors_with_gaps_are_right_in_functions_with_a_root() -> None:
    for rank, report in enumerate(jobs.run(shm_calls.with_gaps, 2)):
        assert not report.error, report.error
        reduced, scattered, *gathered = report.value
        assert scattered == [10.0, 11.0, 12.0]
        assert reduced == [10.0, 11.0, 12.0]
        assert gathered == ([] if rank else [[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]])


def test_a_list_with_too_few_or_too_many_tensors_is_an_error() -> None:
    for report in jobs.run(shm_calls.of_another_length, 2):
        assert not report.error, report.error
        assert len(report.value) == 2
