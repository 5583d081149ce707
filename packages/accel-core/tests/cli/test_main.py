# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command itself: lazy, open to other packages, alone with its name; and `accel env`."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accel_core import env
from accel_core.__about__ import __version__
from accel_core.cli.main import main
from accel_core.selection.candidates import Discovery
from accel_core.vendor import INTERFACE_VERSION, Vendor

from .conftest import run

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
            assert result.err.startswith(f"[ACC-105] `accel {name}` needs {project.parent.name}\n")
            assert f" ./packages/{project.parent.name}" in result.err
            assert "invalid choice" not in result.err


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
        ["env", "--json", "--markdown"],
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


def test_no_other_installed_package_has_a_script_of_this_name() -> None:
    points = importlib.metadata.entry_points(group="console_scripts", name="accel")
    assert {point.dist.name for point in points if point.dist} == {"accel-core"}
    files = (
        file
        for dist in importlib.metadata.distributions()
        for file in dist.files or ()
        if file.stem == "accel"
    )
    assert {str(file) for file in files if Path(str(file)).parent.name in ("bin", "Scripts")} <= {
        "../../../bin/accel"
    }


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

PAGE = Path(__file__).resolve().parents[4] / "docs/environment.md"


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


def test_the_page_is_the_one_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--markdown"]) == 0
    assert PAGE.read_text(encoding="utf-8") == capsys.readouterr().out


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
