# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fresh interpreters: imports and their order are what is tested here, so every case has a process of its own."""

import importlib.util
import sys
from pathlib import Path

import pytest

from shared.children import Children, run

HERE = Path(__file__).parent
TOY_VENDORS = HERE.parents[3] / "shared" / "toy_vendors"


@pytest.fixture
def children(tmp_path: Path) -> Children:
    return Children(tmp_path, HERE / "children")


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of accel-toy and accel-classic, which are installed as a user would."""
    # No isolated build: it would fetch the build backend, which the tests' requirements bring.
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    folders = {name: tmp_path_factory.mktemp(name) for name in ("accel-toy", "accel-classic")}
    for name, folder in folders.items():
        command = [sys.executable, "-m", "pip", "install", *options, "--target", folder, TOY_VENDORS / name]
        run(*command, check=True)
    return folders


@pytest.fixture
def toy(children: Children, toys: dict[str, Path]) -> Children:
    """Fresh interpreters with accel-toy."""
    return children.on(toys["accel-toy"])


@pytest.fixture
def both(toy: Children, toys: dict[str, Path]) -> Children:
    """Fresh interpreters with accel-classic, too, whose priority is below the CPU's."""
    return toy.on(toys["accel-classic"])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("upstream") and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("not run: package deepspeed")
