# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fresh interpreters: imports and their order are what is tested here, so every case has a process of its own."""

from __future__ import annotations

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
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed accel-toy."""
    return _installed("accel-toy", tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed accel-classic."""
    return _installed("accel-classic", tmp_path_factory.mktemp("classic"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("upstream") and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("not run: package deepspeed")
