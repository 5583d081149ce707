# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""An unchanged program of Hugging Face's accelerate trains on the accelerator with the losses of plain PyTorch."""

import importlib.util
from pathlib import Path

import pytest

from .conftest import trained

NEEDED = ("accelerate", "deepspeed", "accel_sim")
if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    pytest.skip(f"not run: {', '.join(missing)} not installed", allow_module_level=True)

pytestmark = [pytest.mark.more, pytest.mark.upstream]

PROGRAM = Path(__file__).with_name("with_accelerate.py")
#: Ranks of each device: torch has no collectives for mps, and accelerate counts one CPU process (docs/huggingface.md).
RANKS = {"cpu": 1, "npu": 2, "hpu": 2, "xpu": 2, "mlu": 2, "sdaa": 2, "supa": 2, "cuda": 2, "mps": 1}


@pytest.fixture(scope="module")
def plain() -> list[float]:
    found: list[float] = trained("cpu", PROGRAM, "--stage", -1)["losses"]  # in plain PyTorch
    assert found[-1] < found[0]
    return found


@pytest.mark.sample("2-npu")
@pytest.mark.parametrize("key", RANKS)
@pytest.mark.parametrize("stage", [2, 3])
def test_accelerate_trains_as_plain_pytorch_does(key: str, stage: int, plain: list[float]) -> None:
    ranks = RANKS[key] if RANKS[key] > 1 else None
    answer = trained(key, PROGRAM, "--stage", stage, ranks=ranks)
    assert answer.pop("losses") == pytest.approx(plain, rel=1e-5)
    device = "cuda" if key == "supa" else key  # torch_supa lets programs say cuda
    assert answer == {"device": device, "engine": "DeepSpeedEngine", "ranks": RANKS[key], "stage": stage}
