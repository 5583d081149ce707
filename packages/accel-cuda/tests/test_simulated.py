# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import accel_sim


def test_class_on_a_device() -> None:
    unset = ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT")
    base = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(Path(__file__).with_name("device"))],
        env=accel_sim.environment("cuda", base={**base, "OMP_NUM_THREADS": "1"}),
        capture_output=True, text=True, check=False, timeout=550,
    )  # fmt: skip
    assert not done.returncode, done.stdout[-4000:]
