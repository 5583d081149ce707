# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The example that trains from disk: below a limit that training in memory exceeds; resumed with the same losses."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "zero_infinity_nvme" / "train.py"
STEP = re.compile(r"step (\d+) loss ([\d.]+) .*read +(\d+) MiB, wrote +(\d+) MiB")
Command = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = pytest.mark.upstream


def train(python: Command, folder: Path, *options: str) -> list[tuple[str, ...]]:
    """Return step, loss, MiB read and written of each step."""
    ended = python(folder, "-W", "ignore", PROGRAM, "--folder", "run", *options, DS_ACCELERATOR="cpu")
    assert ended.returncode == 0, ended.stderr
    return STEP.findall(ended.stdout)


def test_a_resumed_run_has_the_losses_of_one_without_interruption(python: Command, tmp_path: Path) -> None:
    small = ("--layers", "4", "--limit", "400")
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = train(python, tmp_path / "whole", *small, "--steps", "4")
    first = train(python, tmp_path / "parts", *small, "--steps", "2")
    second = train(python, tmp_path / "parts", *small, "--steps", "4", "--resume")
    assert [row[:2] for row in first + second] == [row[:2] for row in whole]
    assert [row[0] for row in whole] == ["0", "1", "2", "3"]
    assert all(int(read) > 0 and int(written) > 0 for _, _, read, written in whole)


@pytest.mark.slow
def test_a_model_larger_than_the_limit_trains_from_disk_and_not_in_memory(python, tmp_path) -> None:
    options = ("--layers", "40", "--limit", "400", "--steps", "1")  # 560 MiB of states
    assert len(train(python, tmp_path, *options)) == 1
    ended = python(tmp_path, PROGRAM, "--folder", "run", *options, "--in-memory", DS_ACCELERATOR="cpu")
    assert ended.returncode != 0
    assert "memory" in ended.stderr.lower()


@pytest.mark.parametrize(("given", "limit"), [(("--layers", "8"), 67), (("--limit", "40"), 40)])
def test_a_limit_that_is_too_low_is_refused_with_one_that_fits(python, tmp_path, given, limit) -> None:
    ended = python(tmp_path, PROGRAM, "--folder", "run", *given)
    assert ended.returncode == 2
    said = " ".join(ended.stderr.split())
    assert f"a limit of {limit} MiB is too low" in said
    assert re.search(r"Add --limit 400, or leave out --layers", said)
    assert not (tmp_path / "run").exists()
