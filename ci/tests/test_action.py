# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The action `simulate` for other projects: its steps, run as a runner's shell would, test such a project."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT, run

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "simulate/action.yml").read_text(encoding="utf-8"))
LIBRARY = ROOT / "examples/simulated_ci/library"


def run_steps(project: Path, temp: Path, path: str, **inputs: str) -> str:
    """Run what the action runs; return what its steps print. Steps that use another action are left out."""
    known = {f"inputs.{name}": str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()} | {"runner.temp": str(temp)}
    own = ("PYTEST", "ACCEL_", "PYTHONPATH", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    action, output = str(ROOT / "simulate"), str(temp / "output")
    runner = {"GITHUB_ACTION_PATH": action, "GITHUB_OUTPUT": output, "PATH": path}
    said = ""
    for step in ACTION["runs"]["steps"]:
        if "run" not in step:
            continue
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # what people give is data of a variable, never text of a script
        given = {
            name: re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], value)
            for name, value in step.get("env", {}).items()
        }
        command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
        done = run(*command, cwd=project, env=kept | runner | given)
        said += done.stdout
        assert done.returncode == 0, said + done.stderr
    return said


@pytest.mark.slow
def test_a_project_is_tested_on_two_devices_in_an_environment_with_torch_and_pytest_only(
    tmp_path: Path,
) -> None:
    if shutil.which("c++") is None:
        pytest.skip("not run: no C++ compiler")
    for folder in ("environment", "temp"):
        (tmp_path / folder).mkdir()
    shutil.copytree(LIBRARY, tmp_path / "project")
    uv, python = (sys.executable, "-m", "uv"), tmp_path / "environment/bin/python"
    venv = ("venv", "--quiet", "--clear", "--seed", "--python", sys.executable, tmp_path / "environment")
    run(*uv, *venv, check=True)
    links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
    install = ("pip", "install", "--quiet", "--python", python, "-c", ROOT / "constraints.txt")
    run(*uv, *install, "torch", "numpy", "pytest", env={**os.environ, **links}, check=True)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    for inputs in ({"device": "npu", "devices": "1"}, {"device": "hpu", "run": "PT_HPU_LAZY_MODE=0 pytest"}):
        assert "5 passed" in run_steps(tmp_path / "project", tmp_path / "temp", path, **inputs)
    assert (tmp_path / "temp/output").read_text(encoding="utf-8").startswith("key=2.")
