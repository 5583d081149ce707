# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The steps of docs/port-a-backend.md, as printed, make a package that DeepSpeed trains with."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    # pip takes what the workspace has, and installs beside it. It reads the third switch the other way round.
    beside = {"PIP_TARGET": str(site), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    for kind, name, text in STEPS:
        if kind == "file":
            (folder / name).write_text(text, encoding="utf-8")
        else:
            done = shell(text, folder, **beside)
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
