# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Input that a run cannot start with: four parts on stderr, exit status 2, and nothing left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from byte_lm import report
from byte_lm.errors import BadInput
from byte_lm.job import read_job

EXAMPLES = Path(__file__).parent.parent
FOUR_PARTS = re.compile(r"error: .+\n  found:    .+(?:\n {12}.+)*\n  expected: .+\n  do:       .+\n")


def given(content: str, flag: str) -> Callable[[Path], list[str]]:
    """A file `given` with this content, which the flag names."""

    def make(folder: Path) -> list[str]:
        (folder / "given").write_text(content)
        return [flag, "given"]

    return make


def folder_of_binaries(folder: Path) -> list[str]:
    (folder / "given").mkdir()
    (folder / "given" / "table.bin").write_bytes(bytes(200_000))
    return ["--data", "given"]


def checkpoint_without_state(folder: Path) -> list[str]:
    (folder / "given/checkpoint/step000001").mkdir(parents=True)
    (folder / "given/checkpoint/latest").write_text("step000001")
    return ["--resume", "--out", "given"]


def checkpoint_of_another_shape(folder: Path) -> list[str]:
    flags = checkpoint_without_state(folder)
    state = {"identity": {"layers": 9}, "step": 1}
    (folder / "given/checkpoint/step000001/run.json").write_text(json.dumps(state))
    return flags


def just(*flags: str) -> Callable[[Path], list[str]]:
    return lambda folder: list(flags)


CASES = {
    "missing data folder": (just("--data", "nowhere"), "nowhere is missing"),
    "a file as data folder": (given("text " * 100_000, "--data"), "given is not a folder"),
    "no text in the data folder": (folder_of_binaries, "0 text file(s) with 0 bytes"),
    "context longer than the text": (just("--context", "9999999"), "--context 9999999"),
    "missing config": (just("--deepspeed_config", "nowhere.json"), "nowhere.json"),
    "half-written config": (given('{"optimizer": {"type": "Ad', "--deepspeed_config"), "Unterminated string"),
    "config that is no object": (given("[1, 2]", "--deepspeed_config"), "a JSON list"),
    "bad stage in the config": (
        given('{"zero_optimization": {"stage": 7}}', "--deepspeed_config"), "zero_optimization.stage is 7"
    ),
    "bad stage": (just("--stage", "7"), "--stage 7"),
    "offload without ZeRO": (just("--offload", "--stage", "0"), "ZeRO stage 0"),
    "bad dtype": (just("--dtype", "fp7"), "--dtype fp7"),
    "no steps": (just("--steps", "0"), "--steps 0"),
    "no time": (just("--minutes", "0"), "--minutes 0.0"),
    "heads that do not divide the width": (just("--heads", "3"), "--width 128"),
    "unknown flag": (just("--stepps", "3"), "--stepps"),
    "a word for a number": (just("--steps", "many"), "many"),
    "no checkpoint to resume": (just("--resume"), "No such file"),
    "checkpoint without its state": (checkpoint_without_state, "run.json"),
    "checkpoint of another model": (checkpoint_of_another_shape, "layers is 5 here and 9 in the checkpoint"),
    "output below a file": (lambda folder: [given("", "--out")(folder)[0], "given/results"], "given"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused_input_is_explained_and_leaves_nothing(case, tmp_path, monkeypatch) -> None:
    make, found = CASES[case]
    flags = make(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        read_job(flags)
    assert FOUR_PARTS.fullmatch(f"error: {caught.value}\n"), str(caught.value)
    assert found in str(caught.value).splitlines()[1]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_under_a_launcher_refused_input_is_explained_once(tmp_path: Path, python: Callable) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    result = python(tmp_path, *launcher, EXAMPLES / "train_lm.py", "--steps", "0")
    assert result.returncode != 0
    assert result.stderr.count("--steps 0") == 1
    assert FOUR_PARTS.search(result.stderr)


def test_config_that_only_deepspeed_can_judge_is_refused_alike(tmp_path, train, tiny) -> None:
    (tmp_path / "given").write_text('{"zero_optimization": {"stage": 1, "reduce_bucket_size": "wide"}}')
    result = train(tmp_path, *tiny, "--deepspeed_config", "given")
    assert result.returncode == 2
    assert FOUR_PARTS.search(result.stderr), result.stderr
    assert "reduce_bucket_size" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_an_accelerator_that_does_not_exist_is_refused_in_accels_own_words(tmp_path, train, tiny) -> None:
    result = train(tmp_path, *tiny, DS_ACCELERATOR="abacus")
    assert result.returncode == 2
    assert FOUR_PARTS.fullmatch(result.stderr), result.stderr
    assert "abacus" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_run_whose_loss_could_not_be_drawn_is_refused_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="matplotlib is not installed") as error:
        report.check_plotting()
    assert "examples/requirements.txt" in error.value.do
