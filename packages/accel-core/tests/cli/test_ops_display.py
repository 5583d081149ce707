# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops build`: each op is shown when it is tried, as a line in a pipe and in a table on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_core.cli.ops.attempts import progress
from accel_core.cli.ops.listing import Row

from .conftest import Environment

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(odd: Environment, tmp_path: Path) -> Start:
    """Starts `accel ops build` with an op that is loaded once `tmp_path/go` exists."""

    def run(stdout: int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(odd.site),
            "DS_ACCELERATOR": "odd",
            "ODD_WAIT": str(tmp_path / "go"),
            "TERM": "xterm",
            "COLUMNS": "100",
        }
        command = [odd.python, "-m", "accel_core.cli", "ops", "build", "FusedAdamBuilder", "OddSlowBuilder"]
        return subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL, env=environment)

    return run


def test_in_a_pipe_an_op_s_line_comes_before_the_next_op_is_loaded(start: Start, tmp_path: Path) -> None:
    with start(subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = (line.decode() for line in process.stdout)
        # On a slow machine, reminders come first.
        first = next(line for line in lines if not line.endswith("so far\n"))
        assert first.split()[:2] == ["FusedAdamBuilder", "ok"]
        (tmp_path / "go").touch()
        *_, last = lines
    assert process.returncode == 0
    last = last.removesuffix("\n")
    assert last.split()[:2] == ["OddSlowBuilder", "ok"]
    assert last == last.rstrip()


def read_until(terminal: int, text: str) -> str:
    """What the terminal shows up to the text; up to the end without one."""
    shown = ""
    while not text or text not in shown:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # Linux's end of a terminal
            data = b""
        if not data:
            break
        shown += data.decode("utf-8", "replace")
    return shown


def test_on_a_terminal_the_table_shows_the_op_that_is_being_loaded(start: Start, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with start(theirs) as process:
        os.close(theirs)
        assert "selecting the accelerator" in read_until(ours, "selecting the accelerator")
        assert "FusedAdamBuilder" in read_until(ours, "loading ")
        (tmp_path / "go").touch()
        rest = read_until(ours, "")
    os.close(ours)
    assert process.returncode == 0
    assert "ops of cpu" in rest
    assert rest.rpartition("OddSlowBuilder")[2].split("loaded;")[0].count("ok") == 1


def test_a_pipe_is_reminded_of_an_op_that_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (Row("A", "a", "served", ""), Row("Bee", "", "missing", "Bee on odd: no"))
    with progress("build", quiet=False) as shown:
        shown.waiting("", 12.0)
        shown.selected("odd", {row.builder: row for row in rows})
        for seconds in (0.0, 9.0, 10.2, 11.2, 20.1):
            shown.waiting("A", seconds)
        shown.tried(Row("A", "a", "ok", "loaded", 21.0))
    assert capsys.readouterr().out.splitlines() == [
        "importing torch and selecting the accelerator: 12 s so far",
        "A: 10 s so far",
        "A: 20 s so far",
        "A    ok        21.00 s  loaded",
        "Bee  missing            no",
    ]
