# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Of all tests of the workspace."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """What a test draws is the same each time: torch begins each process with another seed."""
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        generator.manual_seed(0)
