# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Processes that have a simulated device: a device belongs to its process."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import accel_sim
from accel_core import processes
from accel_sim import build

Ended = subprocess.CompletedProcess[str]
#: test_device.py runs them in processes that have a device.
collect_ignore = [] if os.environ.get("ACCEL_SIM") else ["device"]
#: Arguments that start a file as ranks; their number comes next.
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
#: Execution modes, by name.
MODES: dict[str, dict[str, Any]] = {"plain": {}, "race": {"race": True}, "deferred": {"deferred": True}}
MODES["both"] = {**MODES["race"], **MODES["deferred"]}
#: What programs begin with: a function that returns what a call returns, or its exception as text.
OUTCOME = """
import json

def outcome(call):
    try:
        return call()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
"""


def simulate(
    key: str, *arguments: object, env: dict[str, str] | None = None, timeout: int = 300, **options: Any
) -> Ended:
    """Run Python with these arguments in a process that has the device, whatever device this process has."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "DS_ACCELERATOR"))
    }
    return processes.run(
        [sys.executable, "-W", "ignore", *map(str, arguments)],
        timeout,
        env=accel_sim.environment(key, base={**kept, "OMP_NUM_THREADS": "1", **(env or {})}, **options),
    )


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """Compile once, not in each child."""
    build.library()


@pytest.fixture(scope="session")
def python() -> Callable[..., Ended]:
    """Run Python source after OUTCOME, or a file, on the device: `python("npu", "import torch_npu", devices=3)`."""

    def run(key: str, program: str | Path, *arguments: str, **options: Any) -> Ended:
        words = ("-c", OUTCOME + program) if isinstance(program, str) else (program,)
        return simulate(key, *words, *arguments, **options)

    return run


@pytest.fixture(scope="session")
def printed(python: Callable[..., Ended]) -> Callable[..., list[str]]:
    """As `python`, of a program that succeeds: the lines that it prints."""

    def run(*program: Any, **options: Any) -> list[str]:
        done = python(*program, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
