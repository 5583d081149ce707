# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Results of the shared-memory collectives: those of gloo where it is exact, and of float64 within one rounding."""

from __future__ import annotations

from typing import Any

import pytest
import shm_jobs as jobs
from shm_calls import SIZES, exact, movements, reductions


def _all_passed(reports: list[Any], cases: int) -> None:
    for report in reports:
        assert not report.error, report.error
        assert report.value == cases


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("function", [reductions, movements])
def test_results_are_right_for_every_type_operation_size_and_stride(function: Any, ranks: int) -> None:
    _all_passed(jobs.run(function, ranks, 1, 60, SIZES[:11]), 60)


@pytest.mark.parametrize("function", [reductions, movements])
def test_tensors_larger_than_the_shared_memory_go_through_it_in_pieces(function: Any) -> None:
    _all_passed(jobs.run(function, 2, 2, 6, SIZES[11:]), 6)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_results_of_thousands_of_random_calls(ranks: int) -> None:
    for function, cases, sizes in (
        (reductions, 300, SIZES[:12]),
        (reductions, 12, SIZES[12:]),
        (movements, 300, SIZES[:12]),
    ):
        _all_passed(jobs.run(function, ranks, ranks, cases, sizes, limit=1200.0), cases)


def test_what_does_not_round_equals_gloo_bit_for_bit() -> None:
    for report in jobs.run(exact, 3):
        assert not report.error, report.error
        assert all(report.value.values()), report.value
        assert len(report.value) == 24
