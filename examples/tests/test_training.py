# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whole runs: what they leave, that they learn and resume bit for bit, what is refused, and training from disk."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from byte_lm.errors import BadInput
from byte_lm.job import read_job

EXAMPLES = Path(__file__).parent.parent
STEPS = 6
STAGE_STEPS = 30
EXACT = ("train_loss", "validation_loss", "bytes_trained_on", "text")
# Variant: its stage, and how far its losses may be from plain data parallelism's.
VARIANTS = {"stage0": (0, 0), **{f"stage{n}": (n, 1e-4) for n in (1, 2, 3)}, "stage2_bf16": (2, 0.05)}


def read_summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text(encoding="utf-8"))


def test_a_damaged_checkpoint_of_a_run_is_explained(tmp_path: Path, train: Callable, tiny: list[str]) -> None:
    result = train(tmp_path, *tiny, "--steps", str(STEPS))
    assert result.returncode == 0, result.stderr
    assert "Warning:" not in result.stderr + result.stdout
    out = tmp_path / "runs/train_lm"
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    figures = read_summary(out)
    assert figures["steps"] == len(figures["train_loss"]) == STEPS
    assert figures["validation_loss"][-1] == [STEPS, figures["validation_bits_per_byte"]]
    assert 0 < figures["unigram_entropy_bits_per_byte"] < 8
    assert figures["accelerator"]["name"]
    assert {"python", "torch", "deepspeed"} <= set(figures["versions"])
    assert figures["text"].startswith("def ")
    weights = out / f"checkpoint/step{STEPS:06d}/mp_rank_00_model_states.pt"
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


# --- input that a run cannot start with: four parts on stderr, exit status 2, and nothing left behind

FOUR_PARTS = re.compile(r"error: .+\n  found:    .+(?:\n {12}.+)*\n  expected: .+\n  do:       .+\n")


#: The flags, the text of a file `given`, and what is found.
CASES = {
    "missing data folder": ("--data nowhere", "", "nowhere is missing"),
    "half-written config": ("--deepspeed_config given", '{"optimizer": {"type": "Ad', "Unterminated string"),
    "bad stage": ("--stage 7", "", "--stage 7"),
    "offload without ZeRO": ("--offload --stage 0", "", "ZeRO stage 0"),
    "no steps": ("--steps 0", "", "--steps 0"),
    "output below a file": ("--out given/results", "", "given"),
}


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> str:
    """What is found in these flags; the folder stays as it is."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    monkeypatch.chdir(folder)
    with pytest.raises(BadInput) as caught:
        read_job(flags)
    assert FOUR_PARTS.fullmatch(f"error: {caught.value}\n"), str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    return str(caught.value).splitlines()[1]


@pytest.mark.sample("missing data folder", "half-written config", "bad stage")
@pytest.mark.parametrize("case", CASES)
def test_refused_input_is_explained_and_leaves_nothing(case, tmp_path, monkeypatch) -> None:
    flags, content, found = CASES[case]
    (tmp_path / "given").write_text(content)
    assert found in refused(tmp_path, monkeypatch, *flags.split())


def test_checkpoint_of_another_model_is_refused(tmp_path, monkeypatch) -> None:
    step = tmp_path / "given/checkpoint/step000001"
    step.mkdir(parents=True)
    (step.parent / "latest").write_text("step000001")
    (step / "run.json").write_text(json.dumps({"identity": {"layers": 9}, "step": 1}))
    found = refused(tmp_path, monkeypatch, "--resume", "--out", "given")
    assert "layers is 5 here and 9 in the checkpoint" in found


def test_config_that_only_deepspeed_can_judge_is_refused_alike(tmp_path, train, tiny) -> None:
    (tmp_path / "given").write_text('{"zero_optimization": {"stage": 1, "reduce_bucket_size": "wide"}}')
    result = train(tmp_path, *tiny, "--deepspeed_config", "given")
    assert result.returncode == 2
    assert FOUR_PARTS.search(result.stderr), result.stderr
    assert "reduce_bucket_size" in result.stderr
    assert not (tmp_path / "runs").exists()


# --- the example that trains from disk: below a limit that training in memory exceeds


PROGRAM = Path(__file__).parent.parent / "zero_infinity_nvme" / "train.py"
STEP = re.compile(r"step (\d+) loss ([\d.]+) .*read +(\d+) MiB, wrote +(\d+) MiB")


def train_from_disk(python: Callable, folder: Path, *options: str) -> list[tuple[str, ...]]:
    """Return step, loss, MiB read and written of each step."""
    ended = python(folder, "-W", "ignore", PROGRAM, "--folder", "run", *options, DS_ACCELERATOR="cpu")
    assert ended.returncode == 0, ended.stderr
    return STEP.findall(ended.stdout)


@pytest.mark.slow
@pytest.mark.upstream
def test_a_resumed_run_has_the_losses_of_one_without_interruption(python: Callable, tmp_path: Path) -> None:
    small = ("--layers", "4", "--limit", "400")
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = train_from_disk(python, tmp_path / "whole", *small, "--steps", "4")
    first = train_from_disk(python, tmp_path / "parts", *small, "--steps", "2")
    second = train_from_disk(python, tmp_path / "parts", *small, "--steps", "4", "--resume")
    assert [row[:2] for row in first + second] == [row[:2] for row in whole]
    assert [row[0] for row in whole] == ["0", "1", "2", "3"]
    assert all(int(read) > 0 and int(written) > 0 for _, _, read, written in whole)


@pytest.mark.slow
@pytest.mark.upstream
def test_a_model_larger_than_the_limit_trains_from_disk_and_not_in_memory(python, tmp_path) -> None:
    options = ("--layers", "40", "--limit", "400", "--steps", "1")  # 560 MiB of states
    assert len(train_from_disk(python, tmp_path, *options)) == 1
    ended = python(tmp_path, PROGRAM, "--folder", "run", *options, "--in-memory", DS_ACCELERATOR="cpu")
    assert ended.returncode != 0
    assert "memory" in ended.stderr.lower()


@pytest.mark.upstream
@pytest.mark.parametrize(("given", "limit"), [(("--layers", "8"), 67), (("--limit", "40"), 40)])
def test_a_limit_that_is_too_low_is_refused_with_one_that_fits(python, tmp_path, given, limit) -> None:
    ended = python(tmp_path, PROGRAM, "--folder", "run", *given)
    assert ended.returncode == 2
    said = " ".join(ended.stderr.split())
    assert f"a limit of {limit} MiB is too low" in said
    assert re.search(r"Add --limit 400, or leave out --layers", said)
    assert not (tmp_path / "run").exists()
