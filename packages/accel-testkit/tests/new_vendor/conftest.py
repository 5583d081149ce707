# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs of this Python that see nobody's wish for an accelerator."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_core import processes

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def run() -> Run:
    """`run("pytest", "-q", cwd=folder, NAME="value")`: a module as a program; its output, whatever its exit status."""

    def start(*command: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        ours = {k: v for k, v in os.environ.items() if k != "DS_ACCELERATOR" and not k.startswith("ACCEL_S")}
        return processes.run([sys.executable, "-m", *command], 600, cwd=cwd, env={**ours, **environment})

    return start
