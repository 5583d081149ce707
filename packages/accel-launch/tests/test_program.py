# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What each rank executes, and that it exists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from accel_launch import planning
from accel_launch.errors import InvalidArguments
from accel_launch.options import Options


def test_commands() -> None:
    python = (sys.executable, "-u")
    assert planning._program(Options("a.py", ("--lr", "1"))).command == (*python, "a.py")
    assert planning._program(Options("a.py", ("--lr", "1"))).arguments == ("--lr", "1")
    assert planning._program(Options("a.b", module=True)).command == (*python, "-m", "a.b")
    assert planning._program(Options("./a", no_python=True)).command == ("./a",)
    assert planning._program(Options("a.py")).pass_local_rank
    assert not planning._program(Options("a.py", no_local_rank=True)).pass_local_rank


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("raise SystemExit('imported')")
    run = tmp_path / "run.sh"
    run.write_text("#!/bin/sh\n")
    run.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        Options("train.py"),
        Options("train", module=True),
        Options("own.part", module=True),
        Options("json.tool", module=True),
        Options("./run.sh", no_python=True),
        Options("sh", no_python=True),
    ],
)
def test_programs_that_exist(options: Options) -> None:
    planning.check_program(options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (Options("missing.py"), "missing.py"),
        (Options("missing", module=True), "missing"),
        (Options(".train", module=True), "no module ''"),
        (Options("train.py", no_python=True), "not an executable file"),
        (Options("./missing", no_python=True), "missing"),
        (Options("train.py", ("a\0b",)), "NUL"),
    ],
)
def test_programs_that_do_not_exist_are_named(options: Options, named: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        planning.check_program(options)
    assert named in caught.value.found
