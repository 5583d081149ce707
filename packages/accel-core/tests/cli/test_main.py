# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command itself: lazy, open to other packages; `accel env`; the doctor on a terminal."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accel_core import env
from accel_core.__about__ import __version__
from accel_core.cli.doctor import advice, command
from accel_core.cli.doctor.command import DoctorReport
from accel_core.cli.doctor.examine import Bridge, DeepSpeedInfo, Facts, Torch
from accel_core.cli.main import main
from accel_core.selection.candidates import Candidate, Discovery, State
from accel_core.selection.choose import Request, Verdict
from accel_core.selection.current import Selection, explained
from accel_core.vendor import INTERFACE_VERSION, Vendor

from .conftest import Environment, run

WITHOUT_TORCH = """
import sys
from accel_core.cli.main import main
try:
    main({arguments})
finally:
    heavy = sorted({{"torch", "deepspeed"}} & sys.modules.keys())
    print(heavy, file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["env"], ["doctor", "--json"]])
def test_no_command_imports_torch_or_deepspeed_itself(healthy: Any, arguments: list[str]) -> None:
    healthy.module("program.py", WITHOUT_TORCH.format(arguments=arguments))
    result = healthy.python_module("program")
    assert result.err.splitlines()[-1] == "[]"
    assert result.out


def test_help_loads_no_command() -> None:
    code = "import sys; from accel_core.cli.main import main; main([]); print('rich' in sys.modules, file=sys.stderr)"
    result = run(sys.executable, "-c", code)
    assert result.err.strip() == "False"
    assert "doctor" in result.out


def test_a_command_whose_package_is_missing_is_answered_with_the_package(bare: Any) -> None:
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


def test_a_command_that_an_older_release_of_its_package_lacks_is_answered_with_an_upgrade(bare: Any) -> None:
    bare.distribution("accel-sim", "0.0.1")
    assert "pip install --upgrade ./packages/accel-sim" in bare.run("sim").err


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"accel-core {__version__}\n"
    assert main([]) == 2
    for wrong in (
        ["nonsense"],
        ["doctor", "--timeout", "0"],
        ["doctor", "--timeout", "x"],
        ["env", "--yaml"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2


def test_other_packages_add_commands_and_broken_ones_are_in_nobodys_way(bare: Any) -> None:
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

    for name in ("silent", "nested"):
        bare.module(f"{name}/__init__.py", "raise RuntimeError('broken')" if name == "silent" else "")
        bare.module(f"{name}/inner/__init__.py", "")
        bare.module(f"{name}/inner/command.py", "'''Run a nested one.'''" if name == "nested" else "")

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
    bare.module("tool/inner/__init__.py", "")
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


def test_a_reader_that_stops_reading_is_no_traceback() -> None:
    command = [sys.executable, "-m", "accel_core.cli", "env", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait() == 1


# --- `accel env` shows the table that the code reads


def test_json_has_every_variable_with_its_present_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCEL_SKIP", "npu,mlu")
    monkeypatch.setenv("DS_ACCELERATOR", "")
    monkeypatch.delenv("ACCEL_STRICT", raising=False)
    assert main(["env", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows)[: len(env.VARIABLES)] == [variable.name for variable in env.VARIABLES]
    assert (rows["ACCEL_SKIP"]["set"], rows["ACCEL_SKIP"]["value"]) == (True, "npu,mlu")
    assert (rows["DS_ACCELERATOR"]["set"], rows["DS_ACCELERATOR"]["value"]) == (True, "")
    assert (rows["ACCEL_STRICT"]["set"], rows["ACCEL_STRICT"]["value"]) == (False, None)
    assert rows["ACCEL_STRICT"]["default"] == "0"


@pytest.mark.parametrize("columns", ["50", "200"])
def test_the_table_marks_what_is_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
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


def test_the_variables_of_installed_vendors_are_listed_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = env.Variable("ACCEL_TOY_CARDS", "2", "Cards of the toy.")
    toy = Vendor(
        key="toy",
        interface=INTERFACE_VERSION,
        accelerator="toy:Toy",
        probe="toy.probe",
        priority=1,
        distribution="accel-toy",
        requires="toy",
        variables=(variable,),
    )
    monkeypatch.setattr("accel_core.cli.variables.discover", lambda: Discovery((toy,), ()))
    assert main(["env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["name"] == "ACCEL_TOY_CARDS"


# --- the doctor on a terminal: its report is complete at any width, and it says what it is waiting for


CPU = Candidate(
    "cpu", 0, State.CHOSEN, "NUMA nodes: 2 [all usable]", package="accel-cpu", version="0.1.0", devices=2
)
NPU = Candidate(
    "npu", 700, State.BROKEN, "its runtime fails with OSError: no driver", error="Traceback: line\n"
)
XPU = Candidate(
    "xpu", 900, State.NOT_INSTALLED, "accel-xpu is not installed", variant="ipex", package="accel-xpu"
)


def report(*candidates: Candidate, torch: Torch | None = None) -> DoctorReport:
    chosen = next((candidate for candidate in candidates if candidate.state is State.CHOSEN), None)
    selection = Selection(Request(), Verdict(chosen, candidates))
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
    assert flat.startswith("1 problem. A fresh process")
    advised = [line for line in text.splitlines() if line.startswith("  do: ")]
    assert any("export ACCEL_SKIP=npu" in line for line in advised)
    assert all(len(line) <= columns for line in text.splitlines() if line not in advised)


def test_when_torch_fails_it_says_that_no_run_can_start(capsys: pytest.CaptureFixture[str]) -> None:
    torch = Torch(
        "2.13.0", False, True, "OSError: no", "torch_sick", "torch-sick", "1.0", error="Traceback: deep"
    )
    text = " ".join(shown(capsys, report(CPU, torch=torch)).split())
    assert "torch 2.13.0, fails to import" in text
    assert "Traceback: deep" in text
    assert "No run can start" in text
    assert "a run would use cpu" in text


def test_the_error_of_a_failed_selection_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    reported = report(NPU)
    reported = replace(
        reported,
        facts=replace(reported.facts, explanation=replace(reported.facts.explanation, error="x\n  do: y")),
    )
    assert "x\n  do: y" in shown(capsys, reported)


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
    return lambda stderr: healthy.start("doctor", "--json", stdout=subprocess.PIPE, stderr=stderr)


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
