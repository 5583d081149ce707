# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ci import lowest, workspace
from ci.problem import Problem
from ci.tests.repository import HEADER, Repository

CORE, CPU = "packages/accel-core/src/accel_core", "packages/accel-cpu/src/accel_cpu"
STALE = "accel-cpu accepts a accel-core that nobody can try"
LACKS = "accel-cpu imports what the lowest accel-core that it accepts lacks"
REFUSED = "accel-cpu is refused by the lowest accel-core that it accepts"


def problems(repository: Repository) -> list[Problem]:
    packages = workspace.load(repository.root)
    return list(lowest.check(repository.root, packages, packages["accel-cpu"]))


def release(repository: Repository, version: str, vendor: str) -> None:
    """A core of that version with that accel_core.vendor, tagged."""
    repository.write(f"{CORE}/__about__.py", f'{HEADER}__version__ = "{version}"\n')
    repository.write(f"{CORE}/vendor.py", HEADER + vendor)
    repository.commit()
    repository.git("tag", f"accel-core-v{version}")


@pytest.fixture
def released(repository: Repository) -> Repository:
    """Core 0.2.0 has Vendor and interface 1, 0.10.0 Feature, too, and interface 2; the tree is 0.11.0."""
    release(repository, "0.2.0", "INTERFACE_VERSION = 1\nclass Vendor: ...\n")
    release(repository, "0.10.0", "INTERFACE_VERSION = 2\nclass Vendor: ...\nclass Feature: ...\n")
    repository.write(f"{CORE}/__about__.py", f'{HEADER}__version__ = "0.11.0"\n')
    repository.commit()
    return repository


def require(repository: Repository, range_: str, vendor: str) -> None:
    repository.package("accel-cpu", requires=(f"accel-core{range_}", "torch>=2.5"), vendor="cpu")
    repository.write(f"{CPU}/vendor.py", HEADER + vendor)


@pytest.mark.parametrize(
    "statement",
    [
        "from accel_core.vendor import Feature\n",
        "from accel_core.vendor import Vendor, Feature as F\n",
        "def f():\n    from accel_core.vendor import Feature\n",
        "import accel_core.vendor.Feature\n",
    ],
)
def test_a_name_that_the_lowest_release_lacks_is_told_with_its_place(
    released: Repository, statement: str
) -> None:
    require(released, ">=0.2,<1", statement)
    (problem,) = problems(released)
    assert problem.what == LACKS
    assert "accel_core.vendor.Feature in packages/accel-cpu/src/accel_cpu/vendor.py:" in problem.found
    assert "accel-core-v0.2.0" in problem.found
    require(released, ">=0.10,<1", statement)
    assert problems(released) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from accel_core.vendor import Vendor\n",
        "from accel_core.vendor import *\n",
        "from accel_core import vendor\n",
        "from .accel_core.vendor import Feature\n",
        "from accel_core_like.vendor import Feature\n",
        "import torch\n",
    ],
)
def test_what_the_lowest_release_has_passes(released: Repository, statement: str) -> None:
    require(released, ">=0.1,<1", statement)
    assert problems(released) == []


def test_a_module_that_the_lowest_release_lacks_is_told(released: Repository) -> None:
    require(released, ">=0.2,<1", "from accel_core.device import graphs\n")
    assert [p.found.split()[0] for p in problems(released)] == [
        "accel_core.device",
        "accel_core.device.graphs",
    ]


def test_a_name_that_is_loaded_on_first_use_counts(repository: Repository) -> None:
    repository.write(f"{CORE}/__init__.py", f'{HEADER}__all__ = ["using"]\n__getattr__ = print\n')
    require(repository, ">=0.2,<1", "from accel_core import using\n")
    assert problems(repository) == []
    require(repository, ">=0.2,<1", "from accel_core import losing\n")
    assert [problem.what for problem in problems(repository)] == [LACKS]


@pytest.mark.parametrize(
    ("range_", "number", "what"),
    [
        (">=0.2,<1", 1, []),
        (">=0.2,<1", 2, [REFUSED]),
        (">=0.10,<1", 2, []),
        (">=0.10,<1", 1, [REFUSED]),
    ],
)
def test_a_vendor_is_written_for_the_interface_number_of_the_lowest_release(
    released: Repository, range_: str, number: int, what: list[str]
) -> None:
    vendor = f"from accel_core.vendor import Vendor\nVENDOR = Vendor(key='cpu', interface={number})\n"
    require(released, range_, vendor)
    assert [problem.what for problem in problems(released)] == what


def test_a_lower_bound_that_was_never_released_is_refused(repository: Repository) -> None:
    repository.write(f"{CORE}/vendor.py", HEADER + "class Feature: ...\n")
    require(repository, ">=0.1,<1", "from accel_core.vendor import Feature\n")
    assert [problem.what for problem in problems(repository)] == [STALE]
    require(repository, ">=0.2,<1", "from accel_core.vendor import Feature\n")
    assert problems(repository) == []


def test_before_a_release_the_tree_is_what_a_package_is_tried_against(repository: Repository) -> None:
    require(repository, ">=0.2,<1", "from accel_core.vendor import Feature\n")
    assert {problem.what for problem in problems(repository)} == {LACKS}
