# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated Apple GPU, and its selection; each in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import accel_sim

SELECT = """
import json, accel_core
chosen = type(accel_core.get_accelerator()).__name__
(mps,) = [candidate for candidate in accel_core.explain().candidates if candidate.key == "mps"]
print(json.dumps([chosen, mps.state.value, mps.reason]))
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run Python where a simulated Apple GPU is, and nobody asks for an accelerator."""
    unset = ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT")
    base = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env=accel_sim.environment("mps", base=base),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def select() -> list[str]:
    """The class that a process chooses, and the state and reason of mps."""
    done = run("-c", SELECT)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: list[str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_class_on_a_device() -> None:
    folder = str(Path(__file__).with_name("device"))
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_device_is_chosen() -> None:
    chosen, state, reason = select()
    assert (chosen, state) == ("MPS_Accelerator", "chosen")
    assert "torch.mps.is_available() is True" in reason
