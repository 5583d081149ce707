# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `ccl` with the real oneCCL, between processes."""

from typing import Any

import ccl_calls
import pytest
import shm_calls
import shm_jobs as jobs

from accel_cpu.ccl import library
from accel_cpu.comm_ops import CCLCommBuilder

pytestmark = pytest.mark.skipif(
    library.folder() is None, reason="not run: oneCCL is not installed (pip install 'accel-cpu[ccl]', 330 MB)"
)


def _values(function: Any, ranks: int) -> list[Any]:
    reports = jobs.run(function, ranks, backend="ccl")
    for report in reports:
        assert not report.error, report.error
    return [report.value for report in reports]


def test_reductions_equal_those_of_torch() -> None:
    assert _values(ccl_calls.reductions, 2) == [36, 36]


def test_movements_arrive_unchanged_and_gloo_does_the_rest() -> None:
    _values(ccl_calls.movements, 2)


def test_tensors_with_gaps_are_right_in_functions_with_a_root() -> None:
    for reduced, scattered, *_ in _values(shm_calls.with_gaps, 2):
        assert reduced == scattered == [10.0, 11.0, 12.0]


def test_groups_of_some_ranks_are_separate() -> None:
    assert _values(ccl_calls.groups, 3) == [[3.0, 1.0], [3.0, 5.0], [3.0, 5.0]]


def test_deepspeeds_backend_uses_the_builder() -> None:
    assert _values(ccl_calls.deepspeeds, 2) == [[3.0, 2.0, 2.0, 1.5]] * 2


def test_the_builder_is_compatible() -> None:
    builder = CCLCommBuilder()
    assert builder.is_compatible()
    assert "oneCCL" in builder.reason
