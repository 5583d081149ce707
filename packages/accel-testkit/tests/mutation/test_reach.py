# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The lines that run are recorded, in threads and in processes that are started too."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from accel_testkit.mutation import reach

MODULE = """
def first(yes):
    if yes:
        return 1
    return 2
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A file with a function."""
    file = tmp_path / "reached.py"
    file.write_text(MODULE)
    return file


@pytest.fixture
def _untraced() -> Iterator[None]:
    before = sys.gettrace()
    yield
    sys.settrace(before)
    threading.settrace(None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("_untraced")
def test_lines_of_the_folder_are_recorded(module: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    exec(compile(MODULE, module, "exec"), names)
    recorded = reach.Reach([f"{tmp_path}/"])
    recorded.start()
    exec("first(True)", names)
    thread = threading.Thread(target=lambda: exec("first(False)", names))
    assert recorded.take() == {(str(module), 3), (str(module), 4), (str(module), -2)}
    thread.start()
    thread.join()
    sys.settrace(None)
    assert recorded.take() == {(str(module), 3), (str(module), 5), (str(module), -2)}


@pytest.mark.usefixtures("_untraced")
def test_function_that_has_only_failed_has_not_returned(tmp_path: Path) -> None:
    file = str(tmp_path / "failing.py")
    text = """
def fails(number):
    value = 1 // number
    return value


def handles(number):
    try:
        return fails(number)
    except ZeroDivisionError:
        return 0
"""
    names: dict[str, object] = {}
    exec(compile(text, file, "exec"), names)
    recorded = reach.Reach([f"{tmp_path}/"])
    recorded.start()
    exec("handles(0)", names)
    first = recorded.take()
    exec("handles(1)", names)
    second = recorded.take()
    sys.settrace(None)
    assert {number for _, number in first if number < 0} == {-7}
    assert {number for _, number in second if number < 0} == {-2, -7}


def test_lines_of_a_started_process_are_recorded(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("ACCEL_MUTATION_REACH", "")
    kept = tmp_path / "kept"
    kept.mkdir()
    reach.watch_started(kept, [f"{tmp_path}/"])
    program = [sys.executable, "-c", "import reached; reached.first(False)"]
    subprocess.run(program, check=True, env=os.environ)
    lines = {number for name, number in reach.take_started(kept) if name == str(module)}
    assert {3, 5} <= lines
    assert 4 not in lines
    assert not reach.take_started(kept)


def test_process_that_nobody_watches_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCEL_MUTATION_REACH", raising=False)
    before = sys.gettrace()
    reach.in_started_process()
    assert sys.gettrace() is before
