# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: the memory counters run while a test does, and at no other time."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from accel_good.memory import Meter


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Count what the test allocates."""
    with Meter():
        return (yield)
