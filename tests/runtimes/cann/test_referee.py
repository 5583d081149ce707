# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch_npu, the simulated npu and the suite agree, but for what is listed with its reasons."""

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


def listed(name: str) -> set[str]:
    return set(json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8")))


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
    real = answers(build.environment({**os.environ}), tmp_path / "real.json")
    simulated = answers(accel_sim.environment("npu"), tmp_path / "simulated.json")
    differences = {question for question in real if real[question] != simulated[question]}
    assert differences == listed("differences.json")


@pytest.mark.timeout(3000)
def test_suite_fails_as_listed(tmp_path: Path) -> None:
    results = tmp_path / "suite.json"
    options = ("--pyargs", "accel_testkit.suite", "--accel", "npu", "--results", str(results))
    command = (sys.executable, "-m", "pytest", "-q", *options)
    ended = processes.run(command, 2900, env=build.environment({**os.environ}))
    assert results.is_file(), ended.stderr[-3000:]
    checks = json.loads(results.read_text(encoding="utf-8"))["checks"]
    assert {check["id"] for check in checks if check["outcome"] == "failed"} == listed("failures.json")
