# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated device, which needs a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accel_testkit import sim

CHECKS = sorted(Path(__file__).parent.glob("device/*_checks.py"))


@pytest.mark.parametrize("checks", CHECKS, ids=lambda path: path.stem)
def test_checks_pass_on_a_simulated_device(checks: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:randomly", str(checks)],
        env=sim.environment("mps"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
