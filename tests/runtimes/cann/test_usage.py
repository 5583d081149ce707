# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel sim npu --runtime torch_npu` and its pytest option give a program the unchanged torch_npu."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accel_core import processes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="not run: needs torch_npu"),
]
_REAL = getattr(importlib.util.find_spec("torch_npu"), "origin", "")
_SIM = (sys.executable, "-m", "accel_core.cli", "sim", "npu")
_TESTS = """
import subprocess, sys

CODE = "import torch, torch_npu; assert not hasattr(torch_npu, 'populate'); print(torch.ones(2).npu().sum().item())"

def test_device(simulated_device):
    import torch, torch_npu
    assert torch_npu.__file__ == {file!r}
    assert torch.ones(2, device=simulated_device).sum().item() == 2

def test_child_has_it():
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True).strip() == "2.0"
"""


def started(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return processes.run(command, 600, env=environment, **options)


def test_device_count_can_be_set() -> None:
    program = "import os, torch_npu, torch; print(torch_npu.__file__, torch.npu.device_count(), flush=True); "
    program += "os.system('npu-smi info -m | grep -c Ascend')"
    ended = started(*_SIM, "--runtime", "torch_npu", "--devices", "3", "--", sys.executable, "-c", program)
    assert ended.stdout.split() == [_REAL, "3", "3"], ended.stderr


def test_simulated_device_replaces_the_runtime() -> None:
    program = "import torch_npu, torch; print(torch_npu.__file__, torch.ones(2, device='npu').sum().item())"
    inner = (*_SIM, "--", sys.executable, "-c", program)
    ended = started(*_SIM, "--runtime", "torch_npu", "--", *inner)
    file, value = ended.stdout.split()
    assert file != _REAL
    assert value == "2.0"


@pytest.mark.parametrize("options", ["", "-n 2"])
def test_project_tests_use_the_runtime(tmp_path: Path, options: str) -> None:
    (tmp_path / "test_project.py").write_text(_TESTS.format(file=_REAL), encoding="utf-8")
    words = f"-m pytest -p no:cacheprovider --accel-sim npu --accel-sim-runtime torch_npu {options}".split()
    ended = started(sys.executable, *words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout
    assert "torch_npu on an emulated driver" in ended.stdout
