# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Of all tests of the workspace: the random numbers of each, and which of them `make test-more` runs."""

from __future__ import annotations

import importlib
import os
import re
import sys
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest

#: Tests that start processes, simulate a device, compile or build a wheel: `make test-more`.
MORE = (
    "tests/*",
    "examples/tests/test_[gtz]*.py",
    "packages/*/tests/test_simulated.py",
    "packages/*/tests/test_wheel.py",
    "packages/*/tests/test_kernels*.py",
    "packages/accel-compare/tests/test_[cr]*.py",
    "packages/accel-core/tests/bridge/*",
    "packages/accel-core/tests/cli/test_doctor.py",
    "packages/accel-core/tests/native/*",
    "packages/accel-core/tests/situations/*",
    "packages/accel-cpu/tests/shm/*",
    "packages/accel-cpu/tests/test_collectives.py",
    "packages/accel-launch/tests/execution/*",
    "packages/accel-ops/tests/io/*",
    "packages/accel-ops/tests/test_[dfiksz]*.py",
    "packages/accel-rehearse/tests/test_rehearsals.py",
    "packages/accel-sim/tests/*",
    "packages/accel-testkit/tests/*",
    "packages/accel-xpu/tests/spirv/*",
    "packages/accel-zero/tests/test_[eflt]*.py",
)

#: Run nightly and by `make test-all` only: mutants of the conformance suite, and long programs that resemble others.
SLOW = (
    "packages/accel-testkit/tests/suite/test_variants.py",
    "packages/accel-testkit/tests/new_vendor/test_tutorial.py",
    "packages/accel-compare/tests/test_command.py::test_operation_is_isolated",
    "docs/tests/test_backends.py",
    "examples/tests/test_notebook.py::test_the_notebook_runs",
    "examples/tests/test_training.py::test_a_damaged_checkpoint",
    "tests/huggingface/test_accelerate.py",
    "tests/programs/test_programs.py",
)

#: Files that take minutes: a worker begins with them, so that none is left when the others have ended.
LONG = (
    "tests/vendors/test_quick.py",
    "packages/accel-core/tests/*",
    "packages/accel-compare/tests/*",
    "packages/accel-sim/tests/*",
    "examples/tests/*",
)


def _left_out(item: pytest.Item) -> bool:
    """True where the test is marked with a sample of its parameters, and has none of them."""
    sample, of = item.get_closest_marker("sample"), getattr(item, "callspec", None)
    return sample is not None and not any(fnmatch(of.id, pattern) for pattern in sample.args)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a vendor's tests of its device where there is none; tests/vendors/test_simulated.py runs them."""
    found = re.search(r"/packages/accel-(\w+)/tests/device$", collection_path.as_posix())
    if found is None or found[1] in ("cpu", "sim") or os.environ.get("ACCEL_SIM"):
        return None
    from accel_core.vendor import known_device  # not there where accel-port is tested

    runtime = known_device(found[1], "native" if found[1] == "xpu" else "").runtime.partition(".")[0]
    if runtime:
        return None if find_spec(runtime) else True
    present = importlib.import_module("torch").accelerator.current_accelerator()
    return None if present is not None and present.type == found[1] else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampled = {item.function for item in items if item.get_closest_marker("sample")}  # type: ignore[attr-defined]
    missing = sampled - {item.function for item in items if not _left_out(item)}  # type: ignore[attr-defined]
    if missing and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(
            f"no parameter has an id of the sample: {', '.join(f.__name__ for f in missing)}"
        )
    for item in items:
        file = item.nodeid.partition("::")[0]
        if any(fnmatch(file, pattern) for pattern in MORE):
            item.add_marker(pytest.mark.more)
        if any(fnmatch(item.nodeid, f"{pattern}*") for pattern in SLOW) or _left_out(item):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: [not fnmatch(item.nodeid, f"{pattern}*") for pattern in LONG])


@pytest.fixture(autouse=True)
def _same_output_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of pytest inside of a test prints the same everywhere: in CI its summary repeats whole messages."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Seed torch for each test: torch begins each process with another seed."""
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        generator.manual_seed(0)
