# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The steps of docs/port-a-backend.md and the patch of docs/proposal.md, as printed, give DeepSpeed a backend."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from accel_core.vendor import deepspeed_folder
from shared.children import Children

pytestmark = [pytest.mark.more, pytest.mark.upstream]

PAGE = (Path(__file__).resolve().parents[1] / "port-a-backend.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^<!-- (run|file): (\S+) -->\n```\w*\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)

PROGRAM = """
import os, torch, deepspeed
from deepspeed.accelerator import get_accelerator
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
engine, optimizer, *_ = deepspeed.initialize(model=model, config=config)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4, device=engine.device)).square().mean())
    engine.step()
accel = get_accelerator()
print("class", type(accel).__module__, type(accel).__name__)
print("builder", accel.get_op_builder("FusedAdamBuilder").__module__)
print("device", next(model.parameters()).device)
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, shell: Any) -> Callable[[str], str]:
    """What a command prints on a machine on which the package of the page is installed, and its runtime."""
    for name in ("deepspeed", "accel_sim", "accel_cuda"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not installed: {name}")
    folder = tmp_path_factory.mktemp("port")
    site = folder / "site"
    # pip takes what the workspace has, and installs into another folder. It reads the third switch the other way round.
    more = {"PIP_TARGET": str(site), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    for kind, name, text in STEPS:
        if kind == "file":
            (folder / name).write_text(text, encoding="utf-8")
        else:
            done = shell(text, folder, **more)
            assert done.returncode == 0, done.stdout
    # The vendor's runtime: here torch.cuda is simulated, which it would replace.
    (site / "torch_xmlir.py").write_text("")
    about = site / "torch_xmlir-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_xmlir\nVersion: 1.0\n")
    (folder / "program.py").write_text(PROGRAM)

    def run(command: str) -> str:
        done = shell(f"accel sim cuda -- {command}", folder, PYTHONPATH=str(site), DS_ACCELERATOR="klxpu")
        assert done.returncode == 0, done.stdout
        return str(done.stdout)

    return run


def test_deepspeed_trains_with_the_class_and_the_builders_of_the_package(simulated) -> None:
    shown = simulated("python program.py")
    assert "class accel_klxpu.accelerator KLXPU_Accelerator" in shown
    assert "builder accel_klxpu.op_builder" in shown
    assert "device cuda:0" in shown


def test_the_doctor_has_a_row_with_the_package(simulated: Callable[[str], str]) -> None:
    shown = simulated("accel doctor")
    assert re.search(r"^ *klxpu +chosen.*accel-klxpu 0\.1", shown, flags=re.MULTILINE), shown


# --- docs/proposal.md: with the patch DeepSpeed finds another package's accelerator, without our bridge


ROOT = Path(__file__).resolve().parents[2]
PATCH = ROOT / "docs/proposal/entry-points.patch"
#: The release of DeepSpeed to which the patch applies without an offset in its text.
RELEASE = "0.19.8"

ACME = """
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    class Acme_Accelerator(CPU_Accelerator):
        def __init__(self):
            super().__init__()
            self._name = "cpu"

    def detect(name):
        print("asked for", name)
        return Acme_Accelerator()
"""
NAME_IT = "import deepspeed; print('got', type(deepspeed.accelerator.get_accelerator()).__name__)"


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Children:
    """Children with a patched copy of DeepSpeed, and an installed package with an accelerator."""
    stock = deepspeed_folder()
    if stock is None or importlib.metadata.version("deepspeed") != RELEASE:
        pytest.skip(f"the patch is for deepspeed {RELEASE}")
    folder = tmp_path_factory.mktemp("patched")
    shutil.copytree(stock, folder / "deepspeed", ignore=shutil.ignore_patterns("__pycache__"))
    command = ["git", "apply", "--verbose", "-p1", "--directory", "deepspeed", str(PATCH)]
    environment = {**os.environ, "GIT_DIR": str(folder / "no-repository")}
    applied = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr
    assert "offset" not in applied.stderr
    about = folder / "deepspeed_acme-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed_acme\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[deepspeed.accelerators]\nacme = deepspeed_acme:detect\n")
    (folder / "deepspeed_acme.py").write_text(dedent(ACME), encoding="utf-8")
    return Children(folder, folder)


@pytest.mark.parametrize(("name", "got"), [(None, "Acme"), ("acme", "Acme"), ("cpu", "CPU")])
def test_entry_point_is_found(patched: Children, name: str | None, got: str) -> None:
    # Nothing is imported by torch.
    done = patched.attempt(NAME_IT, TORCH_DEVICE_BACKEND_AUTOLOAD="0", DS_ACCELERATOR=name)
    assert f"got {got}_Accelerator" in done.out, done.err
