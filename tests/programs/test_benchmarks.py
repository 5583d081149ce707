# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every benchmark can be started: they run rarely, and import what other packages may have renamed."""

import importlib
import os
import pkgutil
from pathlib import Path

import pytest

import benchmarks
from shared.children import on_device


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(benchmarks.__path__)])
def test_benchmark_can_be_imported_and_chooses_nothing_for_its_importer(name: str) -> None:
    before = chosen()
    importlib.import_module(f"benchmarks.{name}")
    assert chosen() == before


def chosen() -> dict[str, str]:
    """Return the variables of selection and of the bridge; torch sets some of its own."""
    return {name: value for name, value in os.environ.items() if name.startswith(("ACCEL_", "DS_", "PATH"))}


@pytest.mark.slow
def test_part_for_gpus_has_a_row_for_each_goal() -> None:
    """On a simulated GPU, whose times mean nothing."""
    root = Path(__file__).parents[2]
    done = on_device("cuda", "-m", "benchmarks.device", "--try", PYTHONPATH=str(root))
    assert len([line.split(" | ")[3] for line in done.out.splitlines()[2:]]) == 10
