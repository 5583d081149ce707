# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A core and a vendor package with different interface numbers: in a run, and for pip."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from packaging.requirements import Requirement

from accel_core import vendor
from accel_core.errors import AcceleratorBroken

NOW = vendor.INTERFACE_VERSION
NEXT, LATER = NOW + 1, NOW + 2
#: The release that takes a package of NOW no more.
ENDS = re.escape(vendor.release(LATER))


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`core(NEXT)` makes this core one of that number, which has an adapter for the one before."""

    def become(number: int) -> None:
        change = vendor.Change(
            "priorities count in tens", lambda old: replace(old, priority=10 * old.priority)
        )
        monkeypatch.setattr(vendor, "INTERFACE_VERSION", number)
        monkeypatch.setattr(vendor, "CHANGES", {} if number == NOW else {number: change})

    return become


def test_a_package_of_the_number_before_is_adapted_and_told_when_that_ends(
    machine: Any, core: Callable[[int], None]
) -> None:
    machine.install("toy", priority=50)
    core(NEXT)
    said = f"it is written for interface {NOW}, which accel-core takes until {ENDS}; .* count in tens"
    with pytest.warns(DeprecationWarning, match=f"accel-toy: {said}"):
        assert machine.select().device_name() == "toy"
    assert machine.candidate("toy").priority == 500
    assert re.fullmatch(said, machine.candidate("toy").deprecated)


def test_a_package_two_numbers_behind_is_refused_with_both_sides(
    machine: Any, core: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("toy", priority=50)
    core(LATER)
    monkeypatch.setenv("DS_ACCELERATOR", "toy")
    found = machine.refused(AcceleratorBroken).found
    assert "ACC-102" in found
    assert re.search(rf"interface {NOW}; accel-core \S+ has interface {LATER} and takes {NEXT}", found)


def test_a_name_that_moved_is_found_and_says_until_when(core: Callable[[int], None]) -> None:
    core(NEXT)
    old = vendor.deprecated_names("accel_core.vendor", {"evidence": "accel_core.vendor:runtime_evidence"})
    said = (
        f"vendor.evidence is accel_core.vendor.runtime_evidence since interface {NEXT}; .* accel-core {ENDS}"
    )
    with pytest.warns(DeprecationWarning, match=said):
        assert old("evidence") is vendor.runtime_evidence
    with pytest.raises(AttributeError):
        old("runtime_evidence")


def test_a_package_requires_the_cores_that_take_it(core: Callable[[int], None]) -> None:
    for number, package in product((NOW, NEXT, LATER), (NOW, NEXT)):
        core(number)
        admitted = Requirement(vendor.core_requirement(package)).specifier.contains(vendor.release(number))
        assert admitted == (package in vendor.supported_interfaces()), (number, package)
