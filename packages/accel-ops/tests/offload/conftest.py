# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trainings in processes of their own, which can import the modules of `programs/`."""

import importlib.util
from pathlib import Path

import pytest

from shared.children import Children


@pytest.fixture
def children(tmp_path: Path) -> Children:
    for package in ("deepspeed", "accel_cpu"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"not run: package {package}")
    return Children(tmp_path, Path(__file__).with_name("programs"))
