# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a run says while it trains: the time that is left, and that it lives."""

from __future__ import annotations

import io
import re
import time

import pytest
from byte_lm import progress
from byte_lm.progress import EVALUATIONS, TrainingProgress, working
from rich.console import Console


class Clock:
    """A clock that a test moves on."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def view(begin: float = 0.0) -> TrainingProgress:
    return TrainingProgress(Console(file=io.StringIO(), width=200), begin)


def said(shown: TrainingProgress) -> list[str]:
    return shown.console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_time_left_has_the_validations_that_are_ahead(clock: Clock) -> None:
    shown = view()
    clock.now += 10.0
    shown.update(0.5, 5, 2.0, 1.0)
    clock.now += 8.0
    shown.validation_ended(8.0)
    shown.update(0.55, 5, 2.0, 1.0)
    assert said(shown)[0].endswith("0:10 left")
    seconds = round(10 / 0.55 * 0.45 + 8 * (EVALUATIONS - 1))
    assert said(shown)[1].endswith(f"{seconds // 60}:{seconds % 60:02d} left")


def test_a_long_validation_gives_a_sign_of_life_and_a_short_one_none(clock: Clock) -> None:
    shown = view()
    clock.now += 1.0
    shown.validating(0.3)
    assert said(shown) == []
    clock.now += 1.0
    shown.validating(0.6)
    shown.validating(0.7)
    assert [line.strip() for line in said(shown)] == ["validating: 60%"]


def test_a_terminal_shows_the_time_left_in_its_bar(clock: Clock) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with TrainingProgress(console, 0.0) as shown:
        clock.now += 10.0
        shown.update(0.5, 5, 2.0, 1.0)
        assert shown.bar.tasks[0].fields["left"] == "0:10 left"
        shown.validating(0.5)
        assert shown.bar.tasks[0].description == "validating: 50%"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.02)


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    shown, deadline = "", time.monotonic() + 60
    while text not in shown and time.monotonic() < deadline:
        time.sleep(0.01)
        shown += capsys.readouterr().out
    return shown


@pytest.mark.usefixtures("impatient")
def test_a_step_is_named_and_lives_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with working("importing"):
        shown = wait_for("so far\n", capsys)
    assert re.match(r"importing …\n      \d+ s so far\n", shown)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("impatient")
def test_only_the_rank_that_prints_speaks(capsys, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with working("importing"):
        time.sleep(0.1)
    assert capsys.readouterr().out == ""
