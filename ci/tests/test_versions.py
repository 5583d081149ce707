# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of versions is what the packages require and what accel-core does with interface numbers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if importlib.util.find_spec("accel_core") is None:
    pytest.skip("not run: accel_core is not installed", allow_module_level=True)

from accel_core.vendor import INTERFACE_VERSION, core_requirement
from ci import versions, workspace

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / versions.PAGE).read_text(encoding="utf-8")


def test_the_page_is_what_the_packages_say() -> None:
    assert versions.page(ROOT) == PAGE, "python -m ci.versions"


def test_every_package_has_a_row_with_what_it_requires() -> None:
    rows = {row.split("]")[0]: row for row in re.findall(r"^\| \[(accel-.+)$", PAGE, re.MULTILINE)}
    packages = workspace.load(ROOT)
    assert rows.keys() == packages.keys()
    for name, package in packages.items():
        for each in package.requires:
            assert not each.name.startswith("accel-") or f"{each.name} " in rows[name]


def test_a_vendor_package_of_this_interface_requires_what_the_page_says() -> None:
    shown = dict(re.findall(r"^\| (\d+)(?: \(to come\))? \| .+ \| `(.+)` \|$", PAGE, re.MULTILINE))
    wanted = Requirement(shown[str(INTERFACE_VERSION)])
    assert wanted == Requirement(core_requirement(INTERFACE_VERSION))
    vendors = [package for package in workspace.load(ROOT).values() if package.vendors]
    assert len(vendors) == 8
    assert [package.name for package in vendors if wanted not in package.requires] == []
