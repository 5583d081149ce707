# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A CPU accelerator that no launcher of the surrounding shell has spoken to."""

import sys
from pathlib import Path

import pytest

from accel_cpu.accelerator import CPU_Accelerator

# What the ranks of a job run has to be importable in their processes, which inherit this path.
sys.path.insert(0, str(Path(__file__).with_name("ranks")))
LAUNCHER = ("LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "ACCEL_SYSROOT", "CUDA_VISIBLE_DEVICES")
LAUNCHER += ("ACCEL_CPU_BACKEND",)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cpu() -> CPU_Accelerator:
    return CPU_Accelerator()
