# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The suite names true causes on torch_openreg, PyTorch's reference backend, with a package of `accel new-vendor`."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from accel_core import processes
from accel_core.cli.main import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch_openreg") is None, reason="needs torch_openreg"),
]
_PIP = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target")
_SUITE = (
    "-m",
    "pytest",
    "-q",
    "--pyargs",
    "accel_testkit.suite",
    "--accel",
    "openreg",
    "--quick",
    "--results",
)


@pytest.mark.timeout(3000)
def test_failed_checks_name_the_fault(tmp_path: Path) -> None:
    made = ["openreg", "--collectives", "gloo", "--visible", "", "--out", str(tmp_path)]
    assert main(["new-vendor", *made]) == 0
    site, results = tmp_path / "site", tmp_path / "results.json"
    processes.run([sys.executable, *_PIP, site, tmp_path / "accel-openreg"], 300).check_returncode()
    environment = {**os.environ, "PYTHONPATH": str(site)}
    resume: list[str] = []
    while not results.exists():  # openreg ends the process where torch expects an exception
        ended = processes.run([sys.executable, *_SUITE, results, *resume], 2500, env=environment)
        assert results.exists() or ended.returncode < 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        resume = ["--resume"]
    checks = json.loads(results.read_text(encoding="utf-8"))["checks"]
    causes = json.loads(Path(__file__).with_name("causes.json").read_text(encoding="utf-8"))
    assert {check["cause"] for check in checks if check["outcome"] == "failed"} == set(causes)
