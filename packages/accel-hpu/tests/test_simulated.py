# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class and its ops on a simulated device, which needs a process of its own; lazy and eager mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accel_testkit import sim

CHECKS = sorted(Path(__file__).parent.glob("device/*_checks.py"))


@pytest.mark.parametrize("checks", CHECKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_checks_pass_on_a_simulated_device(checks: Path, mode: str) -> None:
    base = {**os.environ, "PT_HPU_LAZY_MODE": "1" if mode == "lazy" else "0"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:randomly", str(checks)],
        env=sim.environment("hpu", base=base), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
