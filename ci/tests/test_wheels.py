# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ci import wheels
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
    repository: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess[str]([], 1)
    monkeypatch.setattr(subprocess, "run", lambda *command, check: failed)
    assert wheels.main(["build", "--out", "wheels"], repository.root) == 1
    assert "do:       correct what it says; if build is missing: pip install build" in capsys.readouterr().err


def test_platform_wheels_alone_are_repaired(commands: list[list[str]], tmp_path: Path) -> None:
    for tag in ("any", "linux_aarch64", "manylinux2014_x86_64"):
        (tmp_path / f"accel_toy-1-py3-none-{tag}.whl").touch()
    assert wheels.main(["repair", str(tmp_path)]) == 0
    (command,) = commands
    assert command[:2] == ["auditwheel", "repair"]
    assert "manylinux2014_aarch64" in command
    assert not list(tmp_path.glob("*-linux_*"))
