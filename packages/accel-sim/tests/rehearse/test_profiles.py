# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices by name: each with a source, and with numbers that such a device can have."""

from __future__ import annotations

import pytest

from accel_sim import vendors
from accel_sim.errors import UnknownProfile
from accel_sim.rehearse.profiles import PROFILES, profile
from accel_sim.rehearse.record import Profile

from .records import GIB


@pytest.mark.parametrize("known", PROFILES, ids=lambda known: known.name)
def test_a_profile_has_a_source_and_numbers_that_a_device_can_have(known: Profile):
    assert known.source.startswith("http")
    assert known.vendor in {vendor.key for vendor in vendors.VENDORS}
    assert 16 * GIB < known.capacity < 256 * GIB
    assert 0 < known.reserve < known.capacity // 8
    assert known.per_node in (4, 8, 12, 16)
    nominal = known.name.rpartition("-")[2]
    if nominal.isdecimal():  # torch never reports more than what is sold
        assert 0.9 * int(nominal) * GIB < known.capacity <= int(nominal) * GIB


def test_names_are_unique():
    assert len({known.name for known in PROFILES}) == len(PROFILES)


def test_a_name_is_found_in_any_case_and_memory_replaces_its_capacity():
    assert profile(" CUDA:H100-80 ").capacity == int(79.11 * GIB)
    smaller = profile("cuda:h100-80", 40 * GIB)
    assert (smaller.capacity, smaller.source) == (40 * GIB, "the command's --memory")


def test_a_vendor_alone_needs_memory():
    assert profile("sdaa", 16 * GIB).capacity == 16 * GIB
    with pytest.raises(UnknownProfile, match=r"'sdaa' without --memory"):
        profile("sdaa")


@pytest.mark.parametrize(
    ("text", "suggested"),
    [("npu:910b64", "npu:910b-64"), ("cuda:h100", "cuda:h100-80"), ("hpu", "hpu:gaudi2")],
)
def test_a_name_that_is_nearly_right_is_suggested(text: str, suggested: str):
    with pytest.raises(UnknownProfile, match=f"accel rehearse {suggested} "):
        profile(text)
