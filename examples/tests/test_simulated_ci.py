# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The projects of simulated_ci pass their tests on simulated devices, each as a project of its own."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PROJECTS = Path(__file__).parents[1] / "simulated_ci"
PASSED = {"library": 5, "trainer": 1, "deepspeed_user": 3}


@pytest.mark.more
@pytest.mark.parametrize("device", ["npu", "hpu"])
@pytest.mark.parametrize("name", PASSED)
def test_the_tests_of_a_project_pass_on_a_simulated_device(python, tmp_path, name, device):
    if name == "trainer" and importlib.util.find_spec("transformers") is None:
        pytest.skip("not run: no transformers here")
    # An environment that was set up before the plug-in was written has no entry point for it.
    known = any(point.value == "accel_sim.pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = () if known else ("-p", "accel_sim.pytest_plugin")
    program = ("-m", "accel_core.cli", "sim", device, "--", sys.executable, "-m", "pytest", *plugin)
    options = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", PROJECTS / name)
    variables = {"DS_ACCELERATOR": device, "PT_HPU_LAZY_MODE": "0"}
    done = python(tmp_path, *program, *options, PROJECTS / name, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{PASSED[name]} passed" in done.stdout
