# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Processes that have a simulated device: a device belongs to its process."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import accel_sim
from accel_sim import build

Run = Callable[..., subprocess.CompletedProcess[str]]
#: test_device.py runs them in processes that have a device.
collect_ignore = [] if os.environ.get("ACCEL_SIM") else ["device"]


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
