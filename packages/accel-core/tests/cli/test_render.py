# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The doctor on a terminal: its report is complete at any width, and it says what it is waiting for."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from accel_core.cli.doctor import advice, command
from accel_core.cli.doctor.command import Report
from accel_core.cli.doctor.examine import Bridge, DeepSpeed, Facts, Torch
from accel_core.selection.candidates import Candidate, State
from accel_core.selection.choose import Request, Step, Verdict
from accel_core.selection.current import Selection, explained

from .conftest import Environment

CPU = Candidate(
    "cpu", 0, State.CHOSEN, "NUMA nodes: 2 [all usable]", package="accel-cpu", version="0.1.0", devices=2
)
NPU = Candidate(
    "npu", 700, State.BROKEN, "its runtime fails with OSError: no driver", error="Traceback: line\n"
)
XPU = Candidate(
    "xpu", 900, State.NOT_INSTALLED, "accel-xpu is not installed", variant="ipex", package="accel-xpu"
)


def report(*candidates: Candidate, torch: Torch | None = None) -> Report:
    chosen = next((candidate for candidate in candidates if candidate.state is State.CHOSEN), None)
    selection = Selection(Request(), Verdict(Step.CONSTRUCT, chosen, candidates))
    facts = Facts(
        python={"version": "3.11.7", "executable": "/usr/bin/python", "platform": "Linux"},
        core="0.1.0",
        torch=torch or Torch("2.13.0", True, True),
        deepspeed=DeepSpeed("0.19.8", ">=0.18,<0.20", True),
        bridge=Bridge(True, "joined"),
        unmet=(),
        selection=selection,
        explanation=explained(selection),
    )
    return Report(facts, tuple(advice.problems(facts)), tuple(advice.notes(facts)))


def shown(capsys: pytest.CaptureFixture[str], reported: Report) -> str:
    command.show(reported)
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_everything_is_reported_at_every_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shown(capsys, report(XPU, NPU, CPU))
    flat = " ".join(text.split())
    for word in (
        "xpu (ipex)", "not-installed", "npu", "broken", "chosen", "accel-cpu 0.1.0", "[all usable]", "3.11.7",
    ):  # fmt: skip
        assert word in flat
    assert "Traceback: line" in text
    assert "1 problem. A fresh process" in flat
    advised = [line for line in text.splitlines() if line.startswith("  do: ")]
    assert any("export ACCEL_SKIP=npu" in line for line in advised)
    assert all(len(line) <= columns for line in text.splitlines() if line not in advised)


def test_without_colour_there_is_no_escape_and_the_state_is_still_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = shown(capsys, report(NPU, CPU))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(capsys, report(NPU, CPU))
    colours = re.compile(r"\x1b\[[\d;]*3\d")
    assert colours.search(coloured)
    assert not colours.search(plain)
    assert "broken" in plain


def test_when_torch_fails_it_says_that_no_run_can_start(capsys: pytest.CaptureFixture[str]) -> None:
    torch = Torch(
        "2.13.0", False, True, "OSError: no", "torch_sick", "torch-sick", "1.0", error="Traceback: deep"
    )
    text = " ".join(shown(capsys, report(CPU, torch=torch)).split())
    assert "torch 2.13.0, fails to import" in text
    assert "Traceback: deep" in text
    assert "No run can start" in text
    assert "a run would use cpu" in text


def test_a_package_for_an_older_interface_is_a_note() -> None:
    (note,) = (
        note for note in report(replace(CPU, deprecated="until 0.3")).notes if note.code == "old-interface"
    )
    assert (note.subject, note.found) == ("cpu", "accel-cpu 0.1.0: until 0.3")


def test_the_error_of_a_failed_selection_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    reported = report(NPU)
    reported = replace(
        reported,
        facts=replace(
            reported.facts, explanation=replace(reported.facts.explanation, error="[ACC-201] x\n  do: y")
        ),
    )
    assert "[ACC-201] x\n  do: y" in shown(capsys, reported)


# --- `accel doctor` says on a terminal what it is waiting for; what it prints for others stays as it is

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file without which `import torch` does not end."""
    return tmp_path / "go"


@pytest.fixture
def start(healthy: Environment, go: Path) -> Start:
    """Starts `accel doctor --json` where torch is slow; standard output is a pipe."""
    healthy.module(
        "torch/__init__.py",
        f"""
        import os, time
        while not os.path.exists({str(go)!r}):
            time.sleep(0.02)
        __version__ = "2.13.0"
        """,
    )

    def run(stderr: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(healthy.site), "TERM": "xterm", "COLUMNS": "100"}
        command = [healthy.python, "-m", "accel_core.cli", "doctor", "--json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment)

    return run


def test_on_a_terminal_it_says_what_it_waits_for_and_the_report_has_none_of_it(
    start: Start, go: Path
) -> None:
    ours, theirs = pty.openpty()
    with start(theirs) as process:
        os.close(theirs)
        shown = b""
        while b"importing torch" not in shown:
            shown += os.read(ours, 4096)
        go.touch()
        assert process.stdout is not None
        report = json.load(process.stdout)
    os.close(ours)
    assert report["torch"]["version"] == "2.13.0"


def test_without_a_terminal_it_says_nothing_more(start: Start, go: Path) -> None:
    go.touch()
    with start(subprocess.PIPE) as process:
        report, errors = process.communicate()
    assert errors == b""
    assert json.loads(report)["torch"]["version"] == "2.13.0"
