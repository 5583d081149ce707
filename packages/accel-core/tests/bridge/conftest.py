# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fresh interpreters: imports and their order are what is tested here, so every case has a process of its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from shared.children import Children

HERE = Path(__file__).parent
TOY_VENDORS = HERE.parents[3] / "shared" / "toy_vendors"


@pytest.fixture
def children(tmp_path: Path) -> Children:
    return Children(tmp_path, HERE / "children")


def _installed(package: str, folder: Path) -> Path:
    """Install a toy vendor's package as a user would, into a folder of its own."""
    # No isolated build: it would fetch the build backend, which the tests' requirements bring.
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder, TOY_VENDORS / package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the installed accel-toy and accel-classic."""
    names = ("accel-toy", "accel-classic")
    return {name: _installed(name, tmp_path_factory.mktemp(name)) for name in names}


@pytest.fixture
def toy(children: Children, toys: dict[str, Path]) -> Children:
    """Fresh interpreters with accel-toy."""
    return children.on(toys["accel-toy"])


@pytest.fixture
def classic(children: Children, toys: dict[str, Path]) -> Children:
    """Fresh interpreters with accel-classic."""
    return children.on(toys["accel-classic"])


@pytest.fixture
def both(toy: Children, toys: dict[str, Path]) -> Children:
    """Fresh interpreters with both."""
    return toy.on(toys["accel-classic"])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("upstream") and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("not run: package deepspeed")
