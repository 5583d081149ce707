# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every torch feature on every simulated device, equal to the CPU; what is missing is in the table of gaps."""

from __future__ import annotations

import pytest

from accel_sim import gaps, vendors
from accel_sim.checks import async_collectives, rare_tensors, tensors, training
from accel_sim.checks import collectives as collective_checks

KEYS = [vendor.key for vendor in vendors.VENDORS]
FEATURES = [*tensors.CHECKS.by_name, *rare_tensors.CHECKS.by_name, *training.CHECKS.by_name]
COLLECTIVES = [*collective_checks.CHECKS.by_name, *async_collectives.CHECKS.by_name]
QUICK = ("npu",)


def _marked(keys: list[str]) -> list[object]:
    return [key if key in QUICK else pytest.param(key, marks=pytest.mark.slow) for key in keys]


@pytest.mark.parametrize("key", _marked(KEYS))
@pytest.mark.parametrize("check", FEATURES)
def test_feature_works_as_on_the_cpu(features, key, check):
    error = features(key)[check]
    if check in gaps.reasons(key):
        assert error, f"{key} can do it: remove the gap {check}"
    else:
        assert not error


@pytest.mark.parametrize("key", _marked([key for key in KEYS if key not in gaps.NO_COLLECTIVES]))
@pytest.mark.parametrize("check", COLLECTIVES)
def test_collective_gives_the_right_numbers(collectives, key, check):
    error = collectives(key)[check]
    if check in gaps.reasons(key):
        assert error, f"{key} can do it: remove the gap {check}"
    else:
        assert not error


def test_every_gap_names_a_check_and_a_vendor_there_is():
    for gap in gaps.GAPS:
        assert gap.check in FEATURES + COLLECTIVES
        assert set(gap.vendors) <= set(KEYS)
        assert gap.reason
    assert set(gaps.NO_COLLECTIVES) <= set(KEYS)
