# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from ci import wheels
from ci.contact import Contact
from ci.problem import CheckError
from ci.tests.repository import Repository


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is run in this Python, less the Python itself; everything succeeds."""
    run: list[list[str]] = []

    def record(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        run.append(command[2:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", record)
    return run


def test_all_packages_are_built_unless_some_are_named(
    repository: Repository, commands: list[list[str]], tmp_path: Path
) -> None:
    assert wheels.main(["build", "--sdist", "--out", str(tmp_path)], repository.root) == 0
    assert [Path(command[-1]).name for command in commands] == [
        "accel-alone",
        "accel-both",
        "accel-core",
        "accel-cpu",
    ]
    assert all("--wheel" not in command for command in commands)
    commands.clear()
    assert wheels.main(["build", "accel-cpu", "--out", str(tmp_path)], repository.root) == 0
    assert commands == [
        ["build", "--wheel", "--outdir", str(tmp_path), str(repository.root / "packages/accel-cpu")]
    ]


def test_install_brings_the_packages_it_stands_on(repository: Repository, commands: list[list[str]]) -> None:
    assert wheels.main(["install", "accel-cpu"], repository.root) == 0
    assert [Path(c[-1]).name for c in commands if c[0] == "build"] == ["accel-core", "accel-cpu"]
    assert [c[0] for c in commands] == ["build", "build", "pip", "pip"]


def test_a_command_that_fails_ends_it_with_what_and_how(
    repository: Repository, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    repository.write("packages/accel-cpu/pyproject.toml", "[project]\n")
    assert wheels.main(["build", "--out", str(tmp_path)], repository.root) == 1
    assert wheels.main(["check", str(tmp_path)], repository.root) == 1
    assert "do:       python -m ci.wheels build --sdist --out" in capsys.readouterr().err


def archives(folder: Path, wheel: list[str], sdist: list[str]) -> None:
    """A wheel and an sdist of accel-toy that hold these names."""
    with zipfile.ZipFile(folder / "accel_toy-1-py3-none-any.whl", "w") as file:
        for name in wheel:
            file.writestr(name, "")
    with tarfile.open(folder / "accel_toy-1.tar.gz", "w:gz") as file_:
        for name in sdist:
            file_.addfile(tarfile.TarInfo(f"accel_toy-1/{name}"))


LICENSED = ["accel_toy-1.dist-info/licenses/LICENSE"]


@pytest.mark.parametrize(
    ("wheel", "sdist", "what"),
    [
        (["accel_toy/LICENSE"], ["LICENSE"], "accel_toy-1-py3-none-any.whl carries no licence"),
        (LICENSED, ["src/LICENSE"], "accel_toy-1.tar.gz carries no licence"),
        (LICENSED, ["LICENSE", "tests/test_x.py"], "accel_toy-1.tar.gz carries tests"),
    ],
)
def test_a_file_without_a_licence_and_an_sdist_with_tests_are_refused(
    commands: list[list[str]], tmp_path: Path, wheel: list[str], sdist: list[str], what: str
) -> None:
    archives(tmp_path, wheel, sdist)
    with pytest.raises(CheckError, match=re.escape(what)):
        wheels.check(tmp_path, Contact("", ""))


def test_pyroma_asks_for_ten_of_ten_of_all_that_is_decided(commands: list[list[str]], tmp_path: Path) -> None:
    archives(tmp_path, LICENSED, ["LICENSE", "src/accel_toy/tests/x.py"])
    sdist = str(tmp_path / "accel_toy-1.tar.gz")
    for origin, options in (
        (Contact("", ""), ["--skip-tests", "Url,AuthorEmail"]),
        (Contact("https://example.com", ""), ["--skip-tests", "AuthorEmail"]),
        (Contact("https://example.com", "a@example.com"), []),
    ):
        commands.clear()
        wheels.check(tmp_path, origin)
        assert [c for c in commands if c[0] == "pyroma"] == [["pyroma", "-n", "10", *options, sdist]]
