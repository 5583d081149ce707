# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A step without progress of its own says that it lives, on the rank that prints."""

from __future__ import annotations

import re
import threading
import time

import pytest
from byte_lm import life
from byte_lm.life import working


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "SILENCE", 0.02)


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    shown, deadline = "", time.monotonic() + 60
    while text not in shown and time.monotonic() < deadline:
        time.sleep(0.01)
        shown += capsys.readouterr().out
    return shown


def test_a_step_is_named_and_lives_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with working("importing"):
        shown = wait_for("so far\n", capsys)
    assert re.match(r"importing …\n      \d+ s so far\n", shown)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().out == ""


def test_an_error_ends_the_signs_of_life() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), working("reading"):
        raise KeyError("x")
    assert threading.active_count() <= before  # another test's thread may have ended meanwhile


def test_only_the_rank_that_prints_speaks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with working("importing"):
        time.sleep(0.1)
    assert capsys.readouterr().out == ""
