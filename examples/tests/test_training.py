# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of a tiny model: what they leave, that they learn, and that a resumed run is the same run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent
STEPS, HALF = 6, 3
STAGES = (0, 1, 2, 3)
STAGE_STEPS = 30


def read_summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, train: Callable, tiny: list[str]) -> Path:
    """Results of an uninterrupted run that has also left a checkpoint half way."""
    folder = tmp_path_factory.mktemp("one_rank")
    result = train(folder, *tiny, "--steps", str(STEPS), "--save_every", str(HALF), "--out", "whole")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return folder / "whole"


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, python: Callable, tiny: list[str]) -> Path:
    """Folder with the results of every ZeRO stage, whole and resumed, on two ranks."""
    folder = tmp_path_factory.mktemp("two_ranks")
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    result = python(folder, *launcher, EXAMPLES / "tests/zero_stages.py", STAGE_STEPS, *tiny)
    assert result.returncode == 0, result.stderr
    return folder


def test_a_run_leaves_a_picture_the_figures_and_a_checkpoint(whole: Path) -> None:
    assert (whole / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (whole / "checkpoint/latest").read_text() == f"step{STEPS:06d}"
    figures = read_summary(whole)
    assert figures["steps"] == len(figures["train_loss"]) == STEPS
    assert figures["validation_loss"][-1] == [STEPS, figures["validation_bits_per_byte"]]
    assert 0 < figures["unigram_entropy_bits_per_byte"] < 8
    assert figures["accelerator"]["name"]
    assert {"python", "torch", "deepspeed"} <= set(figures["versions"])
    assert figures["text"].startswith("def ")


def test_a_resumed_process_continues_bit_for_bit(
    whole: Path, tmp_path: Path, train: Callable, tiny: list[str]
) -> None:
    shutil.copytree(whole / f"checkpoint/step{HALF:06d}", tmp_path / f"halves/checkpoint/step{HALF:06d}")
    (tmp_path / "halves/checkpoint/latest").write_text(f"step{HALF:06d}")

    result = train(tmp_path, *tiny, "--steps", str(STEPS), "--out", "halves", "--resume")

    assert result.returncode == 0, result.stderr
    expected, figures = read_summary(whole), read_summary(tmp_path / "halves")
    assert figures["resumed_from"] == f"step{HALF:06d}"
    assert len(set(expected["train_loss"])) == STEPS
    for name in ("train_loss", "validation_loss", "bytes_trained_on", "text"):
        assert figures[name] == expected[name]


def test_a_damaged_checkpoint_is_explained(
    whole: Path, tmp_path: Path, train: Callable, tiny: list[str]
) -> None:
    shutil.copytree(whole / "checkpoint", tmp_path / "runs/train_lm/checkpoint")
    weights = tmp_path / f"runs/train_lm/checkpoint/step{STEPS:06d}/mp_rank_00_model_states.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = train(tmp_path, *tiny, "--steps", str(STEPS + 1), "--resume")
    assert result.returncode == 2
    assert result.stderr.startswith(
        "error: The checkpoint runs/train_lm/checkpoint/step000006 can not be read.\n"
    )
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_every_zero_stage_resumes_bit_for_bit(two_ranks: Path, stage: int) -> None:
    expected = read_summary(two_ranks / f"stage{stage}/whole")
    figures = read_summary(two_ranks / f"stage{stage}/resumed")
    assert figures["resumed_from"] == f"step{STAGE_STEPS // 2:06d}"
    assert len(figures["train_loss"]) == STAGE_STEPS
    for name in ("train_loss", "validation_loss", "bytes_trained_on", "text"):
        assert figures[name] == expected[name]


@pytest.mark.parametrize("stage", STAGES)
def test_every_zero_stage_learns_the_same(two_ranks: Path, stage: int) -> None:
    expected = read_summary(two_ranks / "stage0/whole")
    figures = read_summary(two_ranks / f"stage{stage}/whole")
    assert figures["identity"]["ZeRO stage"] == stage
    assert figures["validation_loss"][-1][1] < 0.9 * figures["validation_loss"][0][1]
    assert figures["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-3)
