# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One child process a vendor and kind of check: a device belongs to its process, and imports take seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import accel_sim
from accel_sim import build

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """Compile once, not in each child."""
    build.library()


@pytest.fixture(scope="session")
def python() -> Run:
    """Run Python source in a process that has the device: `python("npu", "import torch_npu", devices=3)`."""

    def run(key: str, source: str, *, env: dict[str, str] | None = None, **options: Any) -> Any:
        base = {**os.environ, "DS_ACCELERATOR": "", "OMP_NUM_THREADS": "1", **(env or {})}
        del base["DS_ACCELERATOR"]
        environment = accel_sim.environment(key, base=base, **options)
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", source],
            env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def features() -> Callable[[str], dict[str, str]]:
    """The errors of all feature checks on a vendor's device, by check."""

    @cache
    def results(key: str) -> dict[str, str]:
        return _checks(["-m", "accel_sim.checks", "features", key], key)

    return results


@pytest.fixture(scope="session")
def graphs() -> Callable[[str], dict[str, str]]:
    """The errors of all checks of graphs on a vendor's device, by check."""

    @cache
    def results(key: str) -> dict[str, str]:
        return _checks(["-m", "accel_sim.checks", "graphs", key], key)

    return results


@pytest.fixture(scope="session")
def fused() -> Callable[[str, str], dict[str, str]]:
    """The errors of all checks of a vendor's fused operators, by check; with PT_HPU_LAZY_MODE as given."""

    @cache
    def results(key: str, lazy: str = "1") -> dict[str, str]:
        return _checks(["-m", "accel_sim.checks", "fused", key], key, PT_HPU_LAZY_MODE=lazy)

    return results


@pytest.fixture(scope="session")
def collectives() -> Callable[[str], dict[str, str]]:
    """The errors of all checks of collectives between two ranks, by check."""

    @cache
    def results(key: str) -> dict[str, str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        return _checks([*launcher, "-m", "accel_sim.checks", "collectives", key], key)

    return results


def _checks(arguments: list[str], key: str, **variables: str) -> dict[str, str]:
    environment = accel_sim.environment(key, base={**os.environ, "OMP_NUM_THREADS": "1", **variables})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env=environment, capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parent,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"checks"')]
    assert lines, done.stderr[-3000:]
    checks: dict[str, str] = json.loads(lines[-1])["checks"]
    return checks
