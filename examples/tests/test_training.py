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
STAGE_STEPS = 30
EXACT = ("train_loss", "validation_loss", "bytes_trained_on", "text")
# Variant: its stage, and how far its losses may be from plain data parallelism's.
VARIANTS = {"stage0": (0, 0), **{f"stage{n}": (n, 1e-4) for n in (1, 2, 3)}, "stage2_bf16": (2, 0.05)}


def read_summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, train: Callable, tiny: list[str]) -> Path:
    """Results of an uninterrupted run that has also left a checkpoint half way."""
    folder = tmp_path_factory.mktemp("one_rank")
    result = train(folder, *tiny, "--steps", str(STEPS), "--save_every", str(HALF), "--out", "whole")
    assert result.returncode == 0, result.stderr
    assert "Warning:" not in result.stderr + result.stdout
    return folder / "whole"


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


def test_a_resumed_process_continues_bit_for_bit(whole, tmp_path, train, tiny) -> None:
    shutil.copytree(whole / f"checkpoint/step{HALF:06d}", tmp_path / f"halves/checkpoint/step{HALF:06d}")
    (tmp_path / "halves/checkpoint/latest").write_text(f"step{HALF:06d}")

    result = train(tmp_path, *tiny, "--steps", str(STEPS), "--out", "halves", "--resume")

    assert result.returncode == 0, result.stderr
    expected, figures = read_summary(whole), read_summary(tmp_path / "halves")
    assert figures["resumed_from"] == f"step{HALF:06d}"
    assert len(set(expected["train_loss"])) == STEPS
    assert {name: figures[name] for name in EXACT} == {name: expected[name] for name in EXACT}


def test_a_damaged_checkpoint_is_explained(whole, tmp_path, train, tiny) -> None:
    shutil.copytree(whole / "checkpoint", tmp_path / "runs/train_lm/checkpoint")
    weights = tmp_path / f"runs/train_lm/checkpoint/step{STEPS:06d}/mp_rank_00_model_states.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = train(tmp_path, *tiny, "--steps", str(STEPS + 1), "--resume")
    assert result.returncode == 2
    assert "error: The checkpoint runs/train_lm/checkpoint/step000006 cannot be read.\n" in result.stderr
    assert "Traceback" not in result.stderr


def test_two_ranks_learn_at_every_zero_stage_and_resume_bit_for_bit(tmp_path, python, tiny) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")  # a port of its own
    result = python(tmp_path, *launcher, EXAMPLES / "tests/zero_stages.py", STAGE_STEPS, *tiny)
    assert result.returncode == 0, result.stderr

    plain = read_summary(tmp_path / "stage0/whole")["train_loss"]
    for variant, (stage, tolerance) in VARIANTS.items():
        whole, resumed = (read_summary(tmp_path / variant / kind) for kind in ("whole", "resumed"))
        assert whole["identity"]["ZeRO stage"] == stage
        assert resumed["resumed_from"] == f"step{STAGE_STEPS // 2:06d}"
        assert len(resumed["train_loss"]) == STAGE_STEPS
        assert {name: resumed[name] for name in EXACT} == {name: whole[name] for name in EXACT}, variant
        assert whole["validation_loss"][-1][1] < 0.9 * whole["validation_loss"][0][1], variant
        assert whole["train_loss"] == pytest.approx(plain, rel=tolerance), variant

    hurried = read_summary(tmp_path / "in_a_hurry")
    assert 0 < hurried["steps"] == hurried["validation_loss"][-1][0] < 1_000_000
