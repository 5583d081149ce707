# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The simulated npu answers as torch_npu does, but for the differences that are listed with their reasons."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

import accel_sim
from accel_core import processes
from tests.runtimes.cann import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="not run: needs torch_npu"),
]
_LISTED = Path(__file__).with_name("differences.json")


def answers(environment: dict[str, str], out: Path) -> dict[str, str]:
    """Return the answer to each question; one that is asked twice is named with its number."""
    command = [sys.executable, "-m", "tests.runtimes.cann.referee", str(out)]
    ended = processes.run(command, 300, env=environment)
    assert out.is_file(), ended.stderr[-3000:]
    found: dict[str, str] = {}
    for question, answer in json.loads(out.read_text(encoding="utf-8")):
        found[question if question not in found else f"{question} again"] = answer
    return found


def test_simulated_npu_differs_as_listed(tmp_path: Path) -> None:
    real = answers(build.environment(dict(os.environ)), tmp_path / "real.json")
    simulated = answers(accel_sim.environment("npu"), tmp_path / "simulated.json")
    differences = {question for question in real if real[question] != simulated[question]}
    listed = json.loads(_LISTED.read_text(encoding="utf-8"))
    assert differences == set(listed), {
        each: (real[each], simulated[each]) for each in differences ^ set(listed)
    }
