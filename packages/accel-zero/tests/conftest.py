# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trainings in processes of their own, which can import the modules of `programs/`."""

from pathlib import Path

import pytest

from shared.children import Children


@pytest.fixture
def children(tmp_path: Path) -> Children:
    return Children(tmp_path, Path(__file__).with_name("programs"))
