# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite on torch_npu fails in the checks that are listed with their reasons, and in no others."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from accel_core import processes
from tests.runtimes.cann import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="not run: needs torch_npu"),
]


def test_failures_are_those_listed(tmp_path: Path) -> None:
    results = tmp_path / "suite.json"
    options = ("--pyargs", "accel_testkit.suite", "--accel", "npu", "--results", str(results))
    ended = processes.run(
        (sys.executable, "-m", "pytest", "-q", *options), 2900, env=build.environment({**os.environ})
    )
    assert results.is_file(), ended.stderr[-3000:]
    checks = json.loads(results.read_text(encoding="utf-8"))["checks"]
    listed = json.loads(Path(__file__).with_name("failures.json").read_text(encoding="utf-8"))
    assert {check["id"] for check in checks if check["outcome"] == "failed"} == set(listed)
