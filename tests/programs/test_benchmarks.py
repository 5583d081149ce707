# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every benchmark can be started: they run rarely, and import what other packages may have renamed."""

import importlib
import os
import pkgutil

import pytest

import benchmarks


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_benchmark_can_be_imported_and_leaves_the_environment_alone(name: str) -> None:
    before = dict(os.environ)
    importlib.import_module(f"benchmarks.{name}")
    assert dict(os.environ) == before
