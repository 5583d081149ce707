# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer with a DeepSpeed config trains on accelerators unchanged, with the losses of plain PyTorch."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import trained

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="not run: no release of transformers 5.23 is for Python 3.10 (requirements-hf.txt)",
)
HERE = Path(__file__).parent
#: Rows of a step, whatever the number of ranks; and the largest difference of a loss, relative to itself.
BATCH, TOLERANCE = 8, 1e-6
OPTIONS = {
    "max_steps": 8, "learning_rate": 5e-3, "logging_steps": 1, "seed": 1,
    "save_strategy": "no", "report_to": "none", "disable_tqdm": True,
}  # fmt: skip


def _run(
    key: str,
    out: Path,
    *,
    ranks: int,
    stage: int | None = None,
    program: str = "finetune_and_tell.py",
    **more: str,
) -> dict[str, Any]:
    """What the program reports; without a stage it is run by Python alone, and has no DeepSpeed."""
    options = OPTIONS | more | {"output_dir": out, "per_device_train_batch_size": BATCH // ranks}
    if stage is not None:
        options["deepspeed"] = HERE / f"zero{stage}.json"
    flags = (text for name, value in options.items() for text in (f"--{name}", value))
    started = None if stage is None else ranks
    return trained(key, HERE / program, *flags, ranks=started, HF_HUB_OFFLINE="1")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of the same program without DeepSpeed, on the CPU."""
    answer = _run("cpu", tmp_path_factory.mktemp("plain"), ranks=1)
    assert (answer["engine"], answer["device"]) == ("GPT2LMHeadModel", "cpu")
    losses: list[float] = answer["losses"]
    assert len(losses) == OPTIONS["max_steps"]
    assert losses[-1] < losses[0]
    return losses


#: Ranks of each device. Several CPU ranks have a test of their own; torch has no collectives for mps.
#: docs/huggingface.md says why hpu is not among them.
RANKS = {"cpu": 1, "npu": 2, "xpu": 2, "mlu": 2, "sdaa": 2, "supa": 2, "cuda": 2, "mps": 1}


@pytest.mark.sample("3-npu")
@pytest.mark.parametrize("key", RANKS)
@pytest.mark.parametrize("stage", [2, 3])
def test_trainer_trains_as_plain_pytorch_does(
    key: str, stage: int, plain: list[float], tmp_path: Path
) -> None:
    collectives = "shm" if key == "cpu" else pytest.importorskip("accel_sim.vendors").find(key).collectives
    answer = _run(key, tmp_path, ranks=RANKS[key], stage=stage)
    assert answer.pop("losses") == pytest.approx(plain, rel=TOLERANCE)
    assert answer == {
        "device": key,
        "engine": "DeepSpeedEngine",
        "ranks": RANKS[key],
        "stage": stage,
        "accelerator": f"{key.upper()}_Accelerator",
        "package": f"accel_{key}",
        "collectives": collectives,
    }


@pytest.mark.slow
def test_two_cpu_ranks_share_the_data_when_accelerate_is_given_the_backend(
    plain: list[float], tmp_path: Path
) -> None:
    configured = json.dumps({"use_configured_state": True})
    program = "finetune_on_cpu_ranks.py"
    answer = _run("cpu", tmp_path, ranks=2, stage=2, program=program, accelerator_config=configured)
    assert (answer["ranks"], answer["collectives"]) == (2, "shm")
    assert answer["losses"] == pytest.approx(plain, rel=TOLERANCE)
