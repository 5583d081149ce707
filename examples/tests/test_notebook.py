# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""On simulated devices: the notebook, whose losses are those of plain PyTorch, and the projects of simulated_ci."""

import importlib.util
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import accel_sim
from accel_sim import build

pytestmark = pytest.mark.more

NOTEBOOK = Path(__file__).resolve().parents[1] / "first_steps.ipynb"


def text_of(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs if output.get("name") == "stdout")


@pytest.mark.upstream
def test_the_notebook_runs_on_a_simulated_device(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="not run: package nbclient (requirements-test.txt)")
    pytest.importorskip("ipykernel", reason="not run: package ipykernel (requirements-test.txt)")
    nbformat = pytest.importorskip("nbformat", reason="not run: package nbformat")
    pytest.importorskip("matplotlib", reason="not run: package matplotlib (examples/requirements.txt)")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    build.library()
    dropped = ("DS_", "ACCEL_S", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "PYTEST_", "MPLBACKEND")
    base = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment = accel_sim.environment("npu", base=base)
    environment |= {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3").execute(
        cwd=str(tmp_path), env=environment
    )
    printed = "".join(text_of(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert "chosen: npu with 2 devices" in printed
    assert "NPU_Accelerator on npu:0" in printed
    assert "below 1e-5" in printed
    assert any("image/png" in output.get("data", {}) for output in notebook.cells[-2].outputs)
    if keep := os.environ.get("KEEP_NOTEBOOK"):
        nbformat.write(notebook, keep)


PROJECTS = Path(__file__).parents[1] / "simulated_ci"
PASSED = {"library": 5, "trainer": 1, "deepspeed_user": 3}


@pytest.mark.parametrize("device", ["npu", "hpu"])
@pytest.mark.parametrize("name", PASSED)
@pytest.mark.sample("library-npu")
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
