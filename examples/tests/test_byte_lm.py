# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the example that need no run: its text, batches and model; no device is named in it."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from byte_lm.corpus import load_corpus
from byte_lm.model import ByteGPT, ModelShape
from byte_lm.training import SETTLED, Schedule, TrainingWindows

PLENTY = 10**9


def test_a_copy_of_a_file_does_not_leak_into_the_other_side(texts: Path, tmp_path: Path) -> None:
    shutil.copytree(texts, tmp_path, dirs_exist_ok=True)
    shutil.copytree(texts, tmp_path / "copies")
    corpus = load_corpus(tmp_path, PLENTY)
    for number in range(40):
        line = f"file {number:02d} line".encode()
        assert (line in corpus.train) != (line in corpus.validation)


def test_targets_are_the_inputs_one_byte_later() -> None:
    inputs, targets = TrainingWindows(bytes(range(256)) * 5, 16, seed=1).batch(0, 4)
    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(targets, (inputs + 1) % 256)


@pytest.mark.parametrize(
    ("first", "step", "elapsed", "progress"),
    [(0, 30, 25, 0.5), (0, 60, 50, 1.0), (60, 60, 0, 0.6), (60, 60 + SETTLED, 25, 0.8)],
)
def test_a_slow_or_resumed_run_ends_in_time(first: int, step: int, elapsed: int, progress: float) -> None:
    schedule = Schedule(steps=100, first=first, seconds=50)
    assert schedule.progress(step, elapsed=elapsed) == pytest.approx(progress)


def test_a_later_byte_changes_no_earlier_logits() -> None:
    model = ByteGPT(ModelShape(context=24, layers=2, heads=2, width=16)).eval()
    for block in model.blocks:  # at the start their outputs are zero
        torch.nn.init.normal_(block.attention.out.weight)
        torch.nn.init.normal_(block.down.weight)
    tokens = torch.randint(256, (2, 24))
    changed = tokens.clone()
    changed[:, 15] = (changed[:, 15] + 1) % 256
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :15], after[:, :15])
    assert not torch.isclose(before[:, 15:], after[:, 15:]).all(dim=-1).any()


EXAMPLES = Path(__file__).parent.parent
NAMES = "cuda|xpu|npu|hpu|mlu|sdaa|supa|klxpu|mps|cpu|gpu|nccl|gloo"
DEVICES = re.compile(rf"(?<![a-z0-9])({NAMES})(?![a-z0-9])", re.IGNORECASE)
ALLOWED = re.compile(r"os\.cpu_count|train_micro_batch_size_per_gpu")  # names that Python and DeepSpeed gave
SOURCES = [path for part in ("", "byte_lm/", "sharded_lm/") for path in EXAMPLES.glob(f"{part}*.py")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_device_is_named(source: Path) -> None:
    text = ALLOWED.sub("", source.read_text(encoding="utf-8"))
    assert DEVICES.findall(text) == []
