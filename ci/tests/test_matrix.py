# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ci import matrix, workspace
from ci.problem import CheckError
from ci.tests.repository import Repository

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ["core", "cpu", "both", "alone", "upstream-0.18", "upstream-0.19", "lint", "types", "docs"]
TOX_INI = f"[tox]\nenv_list = {', '.join(ENVIRONMENTS[:4])}, upstream-{{0.18,0.19}}, lint, types, docs\n"


def environments(repository: Repository, *affected: str) -> list[str]:
    packages = workspace.load(repository.root)
    return [row["env"] for row in matrix.rows(packages, ENVIRONMENTS, affected)]


def test_an_affected_package_brings_its_environment_and_those_of_the_workspace(
    repository: Repository,
) -> None:
    shared = ["upstream-0.18", "upstream-0.19", "lint", "types", "docs"]
    assert environments(repository, "accel-cpu") == ["cpu", *shared]
    assert environments(repository, "accel-cpu", "accel-both") == ["cpu", "both", *shared]


def test_documentation_alone_brings_only_what_reads_it(repository: Repository) -> None:
    assert environments(repository) == ["lint", "docs"]


def test_a_row_says_package_environment_and_lowest_python(repository: Repository) -> None:
    rows = matrix.rows(workspace.load(repository.root), ENVIRONMENTS, ["accel-cpu"])
    assert rows[0] == {"package": "accel-cpu", "env": "cpu", "python": "3.10"}
    assert rows[1] == {"package": "workspace", "env": "upstream-0.18", "python": "3.10"}


def test_core_and_the_cpu_run_on_their_oldest_and_their_newest_python(repository: Repository) -> None:
    for name in ("accel-cpu", "accel-alone"):
        file = f"packages/{name}/pyproject.toml"
        text = (repository.root / file).read_text(encoding="utf-8")
        versions = [
            f"Programming Language :: Python :: {version}" for version in ("3", "3.9", "3.13", "3.12")
        ]
        dynamic = 'dynamic = ["version"]\n'
        repository.write(file, text.replace(dynamic, f"{dynamic}classifiers = {versions}\n"))
    packages = workspace.load(repository.root)
    found = matrix.rows(packages, ENVIRONMENTS[:4], ["accel-core", "accel-cpu", "accel-alone"])
    assert [(row["env"], row["python"]) for row in found] == [
        ("core", "3.10"),
        ("cpu", "3.10"),
        ("cpu", "3.13"),
        ("alone", "3.10"),
    ]


def test_a_package_without_an_environment_is_an_error(repository: Repository) -> None:
    repository.package("accel-npu", requires=("accel-core>=0.1,<1",), vendor="npu")
    with pytest.raises(CheckError, match=r"no environment npu"):
        environments(repository)


def test_the_program_reads_tox_and_what_affected_printed(
    repository: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write("tox.ini", TOX_INI)
    monkeypatch.setattr("sys.stdin", io.StringIO('{"packages": ["accel-alone"], "why": {}}'))
    assert matrix.main(["--affected", "-"], repository.root) == 0
    rows = json.loads(capsys.readouterr().out)["include"]
    assert [row["env"] for row in rows] == [
        "alone",
        "upstream-0.18",
        "upstream-0.19",
        "lint",
        "types",
        "docs",
    ]
    assert matrix.main([], repository.root) == 0
    assert [row["env"] for row in json.loads(capsys.readouterr().out)["include"]] == ENVIRONMENTS


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"packages": ["accel-typo"]}'])
def test_a_wrong_list_of_affected_packages_is_an_error_in_four_parts(
    repository: Repository, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    repository.write("tox.ini", TOX_INI)
    assert matrix.main(["--affected", text], repository.root) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(part in captured.err for part in ("found:", "expected:", "do:"))


def test_this_repository_gives_a_row_for_every_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main([], ROOT) == 0
    rows = json.loads(capsys.readouterr().out)["include"]
    assert {row["package"] for row in rows} == {"workspace", *workspace.load(ROOT)}
    assert {row["env"] for row in rows} >= matrix.ALWAYS
    pythons = {env: {row["python"] for row in rows if row["env"] == env} for env in ("core", "cpu")}
    core = workspace.load(ROOT)["accel-core"]
    assert pythons["core"] == pythons["cpu"] == {core.python, core.newest}
    assert core.python != core.newest
    by_hand = {"torch-compat", "xpu-kernels"}
    assert not by_hand & {row["env"] for row in rows}, "gigabytes to download: by hand, and nightly"
    (hf,) = [row for row in rows if row["env"] == "hf"]
    assert hf["python"] == core.newest
