# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The machines of shared/topologies, an accelerator whose ranks are devices, and commands."""

import os
import subprocess
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from accel_core import processes
from accel_launch.machine import Accelerator
from shared.topologies import build

# No deadline, and no look at the time it takes to draw: machines that run tests are loaded. No database: a test leaves
# no trace. Each run draws the same.
settings.register_profile(
    "launch", deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("launch")


@pytest.fixture(scope="session")
def root_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`root_of("laptop")` is a folder with that machine's /sys and /proc."""
    written: dict[str, Path] = {}

    def root(name: str) -> Path:
        if name not in written:
            written[name] = build.write(name, tmp_path_factory.mktemp(name))
        return written[name]

    return root


def set_visible(environment: MutableMapping[str, str], devices: Sequence[str]) -> None:
    environment["TOY_VISIBLE_DEVICES"] = ",".join(devices)


@pytest.fixture
def toy() -> Accelerator:
    return Accelerator("toy", True, ("TOY_VISIBLE_DEVICES",), set_visible, ("TOY_",))


@pytest.fixture
def host_cpu() -> Accelerator:
    return Accelerator("cpu", False, ("TOY_VISIBLE_DEVICES",), set_visible, ("OMP_",))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in `tmp_path`, with the CPU as accelerator and these variables: `run("ls", "-l", LANG="C")`."""

    def go(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "DS_ACCELERATOR": "cpu", **variables}
        return processes.run(command, 600, cwd=tmp_path, env=environment)

    return go
