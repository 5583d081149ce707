# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lightning with the two classes of docs/lightning.md trains with DeepSpeed, with the losses of plain PyTorch."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from .conftest import trained

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "lightning_program.py"
needs_lightning = pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="not run: package lightning (requirements-hf.txt)"
)


def _plain_losses() -> list[float]:
    """Losses of the program's model in plain PyTorch, on the CPU."""
    torch.manual_seed(1)
    inputs = torch.randn(64, 16)
    layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-2)
    losses = []
    for rows in inputs.split(8):
        loss = torch.nn.functional.mse_loss(layers(rows), rows.sum(1, keepdim=True) / 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@needs_lightning
@pytest.mark.sample("cpu-1-2")
@pytest.mark.parametrize(
    ("key", "ranks", "stage"),
    [("cpu", 1, 2), ("npu", 2, 2), ("cpu", 2, 3), ("xpu", 2, 2), ("cuda", 2, 3)],
)
def test_lightning_trains_as_plain_pytorch_does(key: str, ranks: int, stage: int) -> None:
    asked = {"DS_ACCELERATOR": "cpu"} if key == "cpu" else {}
    answer = trained(key, PROGRAM, "--devices", ranks, "--stage", stage, devices=ranks, **asked)
    assert answer.pop("losses") == pytest.approx(_plain_losses(), rel=1e-5)
    assert answer == {"device": key, "engine": "DeepSpeedEngine", "ranks": ranks}


def test_the_classes_of_the_page_are_those_that_run() -> None:
    page = (ROOT / "docs" / "lightning.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program = re.sub(r'\n    """.*?"""\n', "\n", PROGRAM.read_text("utf-8"))
    for part in block.strip().split("\n\n\n")[1:3]:
        assert part.replace("\n\n    ", "\n    ") in program.replace("\n\n    ", "\n    ")
