# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command itself: lazy, open to other packages; `accel env`; the doctor on a terminal."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core import env
from accel_core.__about__ import __version__
from accel_core.cli.doctor import advice, command
from accel_core.cli.doctor.command import DoctorReport
from accel_core.cli.doctor.examine import Bridge, DeepSpeedInfo, Facts, Torch
from accel_core.cli.main import main
from accel_core.selection.candidates import Candidate, State
from accel_core.selection.choose import Decision, Request
from accel_core.selection.current import Selection, explained

from .conftest import Environment, terminal


@pytest.mark.parametrize(
    ("arguments", "modules"), [(["--help"], []), (["env"], ["rich"]), (["doctor", "--json"], ["rich"])]
)
def test_commands_import_little(healthy: Any, arguments: list[str], modules: list[str]) -> None:
    result, imported = healthy.imports(*arguments)
    assert result.status == 0
    assert imported == modules
    assert "doctor" in result.out or "--help" not in arguments


def test_command_of_missing_package(bare: Any) -> None:
    for project in (Path(__file__).resolve().parents[4] / "packages").glob("*/pyproject.toml"):
        text = project.read_text(encoding="utf-8")
        table = re.search(r'entry-points."accel.commands"\]\n((?:[\w-]+ = .*\n)+)', text)
        for name in re.findall(r"^[\w-]+", table[1], re.MULTILINE) if table else ():
            result = bare.run(name, "--list")
            assert result.status == 2
            assert result.err.startswith(f"`accel {name}` needs {project.parent.name}: ")
            assert f" ./packages/{project.parent.name}" in result.err
            assert "invalid choice" not in result.err
    former = bare.run("ops", "profile", "train.py")
    assert (former.status, former.err) == (2, bare.run("zero").err)
    bare.distribution("accel-sim", "0.0.1")
    assert "pip install --upgrade ./packages/accel-sim" in bare.run("sim").err


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"accel-core {__version__}\n"
    assert main([]) == 2
    for wrong in ("nonsense", "doctor --timeout 0", "doctor --timeout x", "env --yaml"):
        with pytest.raises(SystemExit) as ended:
            main(wrong.split())
        assert ended.value.code == 2


def test_commands_of_other_packages(bare: Any) -> None:
    bare.module(
        "extra.py",
        """
        '''`accel extra`: run something more.'''
        class COMMAND:
            def add_arguments(parser): parser.add_argument("--times", type=int)
            def run(args): print("ran", args.times); return 5
        """,
    )
    commands = {
        "extra": "extra:COMMAND",
        "gone": "no_such_module:COMMAND",
        "odd": "os:path",
        "silent": "silent.inner.command",
        "nested": "nested.inner.command",
        "env": "extra:COMMAND",
    }
    bare.distribution("accel-extra", "1.0", {"accel.commands": commands})
    bare.module("silent/__init__.py", "raise RuntimeError('broken')")
    bare.module("nested/__init__.py", "")
    bare.module("nested/inner/command.py", "'''Run a nested one.'''")
    summaries = bare.run("--help").out
    assert "run something more\n" in summaries
    assert "Run a nested one\n" in summaries
    assert "from the package accel-extra" in summaries
    ran = bare.run("extra", "--times", "3")
    assert (ran.status, ran.out) == (5, "ran 3\n")
    for name, found in {"gone": "ModuleNotFoundError", "odd": "without add_arguments and run"}.items():
        broken = bare.run(name)
        assert broken.status == 1
        assert "[ACC-105]" in broken.err
        assert found in broken.err
        assert "pip uninstall accel-extra" in broken.err
    own = bare.run("env", "--json")
    assert own.status == 0
    assert "'env' of accel-extra is left out" in own.err


def test_missing_requirement_names_pip_command(bare: Any) -> None:
    requires = ("Pretty-Printer >=2,<3", "hidden; extra == 'more'")
    commands = {"early": "tool.inner.command", "late": "tool:LATE"}
    bare.distribution("accel-tool", "1.0", {"accel.commands": commands}, requires)
    bare.module("tool/inner/command.py", "import pretty_printer.colours")
    bare.module(
        "tool/__init__.py",
        """
        class LATE:
            def add_arguments(parser): parser.add_argument("module")
            def run(args): __import__(args.module)
        """,
    )
    for words in (["early"], ["late", "pretty_printer"]):
        broken = bare.run(*words)
        assert broken.status == 1
        assert broken.err.startswith("this sub-command of accel-tool needs Pretty-Printer: ")
        assert "; pip install 'Pretty-Printer>=2,<3' [ACC-105]\n" in broken.err
    other = bare.run("late", "hidden")
    assert "ModuleNotFoundError: No module named 'hidden'" in other.err
    assert "[ACC-" not in other.err

    bare.module("rich/__init__.py", "raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')")
    for name in ("doctor", "ops", "env"):
        broken = bare.run(name)
        assert broken.err.startswith("this sub-command of accel-core needs rich: ")
        assert "pip install 'rich>=13'" in broken.err
    assert bare.run("--help").status == 0


def test_reader_that_stops_reading() -> None:
    command = [sys.executable, "-m", "accel_core.cli", "env", "--json"]
    process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait() == 1


@pytest.mark.parametrize(("path", "status"), [("/dev/full", 1), ("/dev/null", 0)])
def test_output_that_cannot_be_written(path: str, status: int) -> None:
    command = ["env", "PYTHONIOENCODING=ascii", sys.executable, "-m", "accel_core.cli", "explain", "202"]
    with open(path, "w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False)


# --- `accel env` shows the table that the code reads


def test_json_has_every_variable(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("ACCEL_SKIP", "npu,mlu")
    monkeypatch.setenv("DS_ACCELERATOR", "")
    monkeypatch.delenv("ACCEL_STRICT", raising=False)
    toy = SimpleNamespace(variables=(env.Variable("ACCEL_TOY_CARDS", "2", "Cards of the toy."),))
    monkeypatch.setattr("accel_core.cli.variables.discover", lambda: SimpleNamespace(vendors=(toy,)))
    assert main(["env", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert [*rows] == [*(variable.name for variable in env.VARIABLES), "ACCEL_TOY_CARDS"]
    assert (rows["ACCEL_SKIP"]["set"], rows["ACCEL_SKIP"]["value"]) == (True, "npu,mlu")
    assert (rows["DS_ACCELERATOR"]["set"], rows["DS_ACCELERATOR"]["value"]) == (True, "")
    assert (rows["ACCEL_STRICT"]["set"], rows["ACCEL_STRICT"]["value"]) == (False, None)
    assert rows["ACCEL_STRICT"]["default"] == "0"


@pytest.mark.parametrize("columns", ["50", "200"])
def test_table_marks_what_is_set(monkeypatch: Any, capsys: Any, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("ACCEL_SKIP", "npu")
    monkeypatch.delenv("ACCEL_STRICT", raising=False)
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert any("ACCEL_SKIP" in line and "set: 'npu'" in line for line in lines)
    assert any("ACCEL_STRICT" in line and "default: 0" in line for line in lines)


@pytest.mark.parametrize("code", ["ACC-202", "acc-202", "202"])
def test_error_code_is_explained(capsys: pytest.CaptureFixture[str], code: str) -> None:
    assert (main(["explain", code]), main(["explain", "ACC-999"])) == (0, 2)
    printed = capsys.readouterr()
    assert printed.out.startswith("ACC-202 AcceleratorUnavailable (ValueError).")
    assert "ACC-203" not in printed.out
    assert main(["explain", "103"]) == 0
    assert capsys.readouterr().out.startswith("ACC-103 InvalidVendor (ImportError, ValueError).")
    assert printed.err.startswith("no such code: ACC-999; known: ACC-101, ")


# --- the doctor on a terminal: its report is complete at any width, and it says what it is waiting for


CPU = Candidate("cpu", 0, State.CHOSEN, "NUMA: 2 [all usable]", "", "accel-cpu", "0.1.0", devices=2)
NPU = Candidate("npu", 700, State.BROKEN, "its runtime fails: no driver", error="Traceback: line\n")
XPU = Candidate("xpu", 900, State.NOT_INSTALLED, "accel-xpu is not installed", "ipex", "accel-xpu")


def report(*candidates: Candidate, torch: Torch | None = None) -> DoctorReport:
    chosen = next((candidate for candidate in candidates if candidate.state is State.CHOSEN), None)
    selection = Selection(Request(), Decision(chosen, candidates))
    facts = Facts(
        python={"version": "3.11.7", "executable": "/usr/bin/python", "platform": "Linux"},
        core="0.1.0",
        torch=torch or Torch("2.13.0", True, True),
        deepspeed=DeepSpeedInfo("0.19.8", ">=0.18,<0.20", True),
        bridge=Bridge(True, "joined"),
        unmet=(),
        selection=selection,
        explanation=explained(selection),
    )
    return DoctorReport(facts, tuple(advice.problems(facts)), tuple(advice.notes(facts)))


def shown(capsys: pytest.CaptureFixture[str], reported: DoctorReport) -> str:
    command.show(reported)
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_report_at_every_width(monkeypatch: Any, capsys: Any, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shown(capsys, report(XPU, NPU, CPU))
    flat = " ".join(text.split())
    for word in (
        "xpu (ipex)", "not-installed", "npu", "broken", "chosen", "accel-cpu 0.1.0", "[all usable]", "3.11.7",
    ):  # fmt: skip
        assert word in flat
    assert "Traceback: line" in text
    assert flat.startswith("1 problem. A fresh process")
    advised = [line for line in text.splitlines() if line.startswith("  do: ")]
    assert any("export ACCEL_SKIP=npu" in line for line in advised)
    assert all(len(line) <= columns for line in text.splitlines() if line not in advised)


def test_report_when_torch_fails(capsys: pytest.CaptureFixture[str]) -> None:
    torch = Torch("2.13.0", False, True, "OSError: no", "torch_sick", error="Traceback: deep")
    text = " ".join(shown(capsys, report(CPU, torch=torch)).split())
    for found in (
        "torch 2.13.0, fails to import",
        "Traceback: deep",
        "No run can start",
        "a run would use cpu",
    ):
        assert found in text


def test_error_of_failed_selection_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    reported = report(NPU)
    explanation = replace(reported.facts.explanation, error="x\n  do: y")
    reported = replace(reported, facts=replace(reported.facts, explanation=explanation))
    assert "x\n  do: y" in shown(capsys, reported)


def test_doctor_on_a_terminal(healthy: Environment, tmp_path: Path) -> None:
    go = tmp_path / "go"  # without it, `import torch` does not end
    healthy.module(
        "torch/__init__.py",
        f"""
        import os, time
        while not os.path.exists({str(go)!r}):
            time.sleep(0.02)
        __version__ = "2.13.0"
        """,
    )
    doctor = partial(healthy.start, "doctor", "--json", stdout=subprocess.PIPE)
    with terminal(lambda stderr: doctor(stderr=stderr)) as (process, read_until):
        assert "importing torch" in read_until("importing torch")
        go.touch()
        report = json.load(process.stdout)
    assert report["torch"]["version"] == "2.13.0"
