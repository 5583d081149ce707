# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The backend `ccl` with the real oneCCL, between processes."""

import ccl_calls
import pytest
import shm_jobs as jobs

from accel_cpu.ccl import library
from accel_cpu.comm_ops import CCLCommBuilder

pytestmark = pytest.mark.skipif(
    library.folder() is None, reason="not run: oneCCL is not installed (pip install 'accel-cpu[ccl]', 330 MB)"
)


def test_reductions_equal_those_of_torch() -> None:
    assert jobs.values(ccl_calls.reductions, 2, backend="ccl") == [36, 36]


def test_movements_arrive_unchanged_and_gloo_does_the_rest() -> None:
    jobs.values(ccl_calls.movements, 2, backend="ccl")


def test_tensors_with_gaps_are_right_in_functions_with_a_root() -> None:
    for reduced, scattered, *_ in jobs.values(ccl_calls.with_gaps, 2, backend="ccl"):
        assert reduced == scattered == [10.0, 11.0, 12.0]


def test_groups_of_some_ranks_are_separate() -> None:
    assert jobs.values(ccl_calls.groups, 3, backend="ccl") == [[3.0, 1.0], [3.0, 5.0], [3.0, 5.0]]


def test_deepspeeds_backend_uses_the_builder() -> None:
    assert jobs.values(ccl_calls.deepspeeds, 2, backend="ccl") == [[3.0, 2.0, 2.0, 1.5]] * 2


def test_the_builder_is_compatible() -> None:
    builder = CCLCommBuilder()
    assert builder.is_compatible()
    assert "oneCCL" in builder.reason
