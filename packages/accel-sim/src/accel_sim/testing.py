# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a vendor's tests that need a device, by pytest in a process that simulates one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from accel_core import processes
from accel_sim import build, stub_packages

#: Variables of a surrounding pytest or launcher, which the tests must not inherit.
_OUTER = ("PYTEST_", "ACCEL_S", "DS_ACCELERATOR", "LOCAL_RANK", "RANK", "WORLD_SIZE")
#: Guards against a hang, in seconds.
_LIMIT = 900


def run(key: str, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> None:
    """Run pytest with these arguments on the simulated device; fail with its output when anything fails.

    environment: laid over that of the process, as {"CN_VISIBLE_DEVICES": "0"}.
    """
    build.library()
    base = {name: value for name, value in os.environ.items() if not name.startswith(_OUTER)}
    done = processes.run(
        [*processes.run_module("pytest"), "-q", "-p", "no:cacheprovider", *map(str, arguments)],
        _LIMIT,
        env={**stub_packages.environment(key, base=base), **(environment or {})},
    )
    if done.returncode:
        pytest.fail(f"on a simulated {key}:\n{done.stdout[-8000:]}{done.stderr[-2000:]}", pytrace=False)
