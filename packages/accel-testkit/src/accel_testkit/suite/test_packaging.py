# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The package: how core finds it, and what installing it brings along."""

from __future__ import annotations

import importlib.metadata
import re

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from accel_core.selection.candidates import discover
from accel_core.vendor import ENTRY_POINT_GROUP, Vendor, core_requirement
from accel_testkit.suite.expect import expect
from accel_testkit.suite.target import records

pytestmark = [pytest.mark.tier("host"), pytest.mark.record]


@pytest.fixture
def requirements(vendor: Vendor) -> list[Requirement]:
    """What is installed with the package, extras left out."""
    lines = importlib.metadata.requires(vendor.distribution) or []
    return [item for item in map(Requirement, lines) if "extra" not in str(item.marker or "")]


def test_entry_point_has_the_name_of_the_key(vendor: Vendor) -> None:
    """The distribution named in the record declares an entry point `key = "package.vendor:VENDOR"`."""
    points = importlib.metadata.distribution(vendor.distribution).entry_points
    names = [point.name for point in points if point.group == ENTRY_POINT_GROUP]
    expect(
        vendor.key in names,
        f"{vendor.distribution} has no entry point for its key",
        found=f"{ENTRY_POINT_GROUP}: {', '.join(names) or 'none'}",
        expected=vendor.key,
        do='name it as the key in pyproject.toml: [project.entry-points."accel.vendors"]',
    )


def test_core_finds_nothing_wrong_with_it(vendor: Vendor) -> None:
    """Discovery loads every entry point of the package without a complaint."""
    complaints = [item.reason for item in discover().broken if vendor.distribution in item.package]
    expect(
        not complaints,
        f"core complains about {vendor.distribution}",
        found="; ".join(complaints),
        expected="entry points that can be loaded, each key provided once",
        do="follow each complaint; docs/errors.md explains its code",
    )


def test_priority_is_its_own(vendor: Vendor) -> None:
    """No other installed vendor has the same priority: the user would have to choose between the two."""
    equals = [v.label for v in discover().vendors if v.priority == vendor.priority and v.key != vendor.key]
    expect(
        not equals,
        f"the priority of {vendor.label} is taken",
        found=f"{vendor.priority}, also that of {', '.join(equals)}",
        expected="a number of its own; those of the cascade have gaps of 100",
        do="choose a number between those of the vendors it should win over and lose to",
    )


def test_requires_a_range_of_core(requirements: list[Requirement], vendor: Vendor) -> None:
    """The package requires the releases of accel-core that take its interface number, no other, and pins none."""
    core = [item.specifier for item in requirements if canonicalize_name(item.name) == "accel-core"]
    wanted = core_requirement(vendor.interface)
    bounds, needed = _bounds(core), _bounds([Requirement(wanted).specifier])
    expect(
        bounds.keys() == needed.keys() and bounds[">="] >= needed[">="] and bounds["<"] <= needed["<"],
        f"{vendor.distribution} does not require the accel-core of its interface number, {vendor.interface}",
        found=", ".join(map(str, core)) or "no requirement",
        expected=f"{wanted}, or a later release as the floor",
        do="write the range into [project] dependencies",
    )


def _bounds(specifiers: list[SpecifierSet]) -> dict[str, Version]:
    return {clause.operator: Version(clause.version) for all_of in specifiers for clause in all_of}


def test_runtime_is_not_required(requirements: list[Requirement], vendor: Vendor) -> None:
    """The vendor's runtime is no hard requirement: it comes from the vendor, for one torch at a time."""
    words = {canonicalize_name(word) for word in re.findall(r"[\w-]+(?:\.[\w-]+)*", vendor.requires)} - {
        "torch"
    }
    hard = [str(item) for item in requirements if canonicalize_name(item.name) in words]
    expect(
        not hard,
        f"{vendor.distribution} forces its runtime on pip",
        found=", ".join(hard),
        expected="no requirement; evidence() checks the installed version against a range",
        do="move it to an extra, or leave it out, and check the range in the probe",
    )


def test_torch_is_not_pinned(requirements: list[Requirement], vendor: Vendor) -> None:
    """The package works with a range of torch: a pin would replace the torch that the runtime was built for."""
    pins = [
        str(item)
        for item in requirements
        if canonicalize_name(item.name) == "torch"
        and any("=" * 2 in clause.operator for clause in item.specifier)
    ]
    expect(
        not pins,
        f"{vendor.distribution} pins torch",
        found=", ".join(pins),
        expected="torch>=2.5, without a cap",
        do="state the floor only, and let evidence() judge the installed version",
    )


def test_version_is_the_distribution_s(vendor: Vendor) -> None:
    """The version in the record, if there is one, is the version that was installed."""
    installed = importlib.metadata.version(vendor.distribution)
    versions = {record.version for record in records(vendor).values()}
    expect(
        versions <= {"", installed},
        f"the record of {vendor.label} has another version than its distribution",
        found=f"{', '.join(versions)} in the record, {installed} installed",
        expected="one version",
        do="take both from one place, such as __about__.py",
    )
