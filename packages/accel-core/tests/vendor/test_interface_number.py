# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The requirement on accel-core that goes with an interface number: pip sees which releases refuse a package."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from accel_core.vendor import core_requirement


@pytest.mark.parametrize(
    ("number", "version", "admitted"),
    [(2, "0.1.0", True), (2, "0.2.7", True), (2, "0.3.0", False), (3, "0.1.9", False), (3, "0.3.0", True)],
)
def test_a_requirement_admits_the_releases_of_its_number_and_of_the_next(
    number: int, version: str, admitted: bool
) -> None:
    assert (version in Requirement(core_requirement(number)).specifier) is admitted
