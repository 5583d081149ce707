# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The class on a simulated Gaudi in both modes, and what is said of a runtime that fails; each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import accel_sim

SELECT = """
import json, accel_core
chosen = type(accel_core.get_accelerator()).__name__
(hpu,) = [candidate for candidate in accel_core.explain().candidates if candidate.key == "hpu"]
print(json.dumps([chosen, hpu.state.value, hpu.reason]))
"""


def run(*command: str, behaviour: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python where a simulated Gaudi is, and nobody asks for an accelerator."""
    unset = ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT", "HABANA_VISIBLE_MODULES", "PT_HPU_LAZY_MODE")
    base = {name: value for name, value in os.environ.items() if name not in unset} | variables
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env=accel_sim.environment("hpu", base=base, behaviour=behaviour),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def select(**options: Any) -> list[str]:
    """The class that a process chooses, and the state and reason of hpu."""
    done = run("-c", SELECT, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: list[str] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("mode", ["1", "0"], ids=["lazy", "eager"])
def test_class_on_a_device(mode: str) -> None:
    folder = str(Path(__file__).with_name("device"))
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder, PT_HPU_LAZY_MODE=mode)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_device_is_chosen_with_its_count() -> None:
    chosen, state, reason = select()
    assert (chosen, state) == ("HPU_Accelerator", "chosen")
    assert "torch.hpu counts 2" in reason


def test_stock_torch_makes_hpu_broken_and_its_device_is_not_given_up_for_the_cpu() -> None:
    done = run("-c", SELECT, behaviour=("hpu.no-local-version",))
    assert done.returncode != 0
    assert "AcceleratorBroken: [ACC-203] hpu cannot be used, and the device is in this machine" in done.stderr
    assert "AttributeError: 'NoneType' object has no attribute 'startswith'" in done.stderr
