# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ci import wheels
from ci.tests.repository import Repository


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is run in this Python, less the Python itself; everything succeeds."""
    run: list[list[str]] = []

    def record(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if command[0] == sys.executable:
            run.append(command[2:])
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.setattr(subprocess, "run", record)
    return run


def test_all_packages_are_built_unless_some_are_named(
    repository: Repository, commands: list[list[str]], tmp_path: Path
) -> None:
    assert wheels.main(["build", "--sdist", "--out", str(tmp_path)], repository.root) == 0
    names = ["accel-alone", "accel-both", "accel-core", "accel-cpu"]
    assert [Path(command[-1]).name for command in commands] == names
    assert all("--wheel" not in command for command in commands)
    commands.clear()
    assert wheels.main(["build", "accel-cpu", "--out", str(tmp_path)], repository.root) == 0
    folder = str(repository.root / "packages/accel-cpu")
    assert commands == [["build", "--wheel", "--outdir", str(tmp_path), folder]]


def test_install_brings_the_packages_it_stands_on(repository: Repository, commands: list[list[str]]) -> None:
    assert wheels.main(["install", "accel-cpu"], repository.root) == 0
    assert [Path(c[-1]).name for c in commands if c[0] == "build"] == ["accel-core", "accel-cpu"]
    assert [c[0] for c in commands] == ["build", "build", "pip", "pip"]


def test_a_command_that_fails_ends_it_with_what_and_how(
    repository: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess[str]([], 1, "")
    monkeypatch.setattr(subprocess, "run", lambda *command, **_: failed)
    assert wheels.main(["build", "--out", "wheels"], repository.root) == 1
    assert "do:       correct what it says; if build is missing: pip install build" in capsys.readouterr().err


def test_platform_wheels_alone_are_repaired(commands: list[list[str]], tmp_path: Path) -> None:
    for tag in ("any", "linux_aarch64", "manylinux2014_x86_64"):
        with zipfile.ZipFile(tmp_path / f"accel_toy-1-py3-none-{tag}.whl", "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("toy.py"), "")
    assert wheels.main(["repair", str(tmp_path)]) == 0
    (command,) = commands
    assert command[:2] == ["auditwheel", "repair"]
    assert "manylinux2014_aarch64" in command
    assert not list(tmp_path.glob("*-linux_*"))


@pytest.mark.more
def test_builds_of_a_commit_have_the_same_bytes_and_name_their_components(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx", reason="not run: requirements-dev.txt is newer than this environment")
    builds = []
    for name in ("first", "second"):
        wheels.build(Path(__file__).parents[2], ["accel-mps"], tmp_path / name, "--no-isolation", "--quiet")
        wheels.add_sboms(tmp_path / name)
        builds.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert builds[0] == builds[1]
    (wheel,) = (tmp_path / "first").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (sbom,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        text = archive.read(sbom).decode()
        assert sbom in archive.read(next(n for n in archive.namelist() if n.endswith("/RECORD"))).decode()
    assert '"purl": "pkg:pypi/accel-mps@' in text
    assert '"value": "accel-core<' in text
