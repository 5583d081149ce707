# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The workflows name only what exists, hold no credential, and may do no more than they need."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import matrix, workspace

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
#: Whatever tells somebody to run a program of ci/.
TELLERS = [*WORKFLOWS, *sorted(ROOT.glob("*.md")), ROOT / "Makefile", ROOT / "tox.ini"]
every_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
every_teller = pytest.mark.parametrize("file", TELLERS, ids=lambda path: path.name)


def jobs(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    return found


def test_there_are_these_workflows() -> None:
    assert [file.stem for file in WORKFLOWS] == ["nightly", "release", "test"]


@every_workflow
def test_a_workflow_says_what_why_and_when(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["# What", "# Why", "# When"]


@every_workflow
def test_actions_are_pinned_to_a_commit_with_its_version_beside_it(file: Path) -> None:
    uses = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    assert uses
    pinned = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [line for line in uses if not pinned.fullmatch(line)] == []


@every_workflow
def test_a_workflow_reads_the_repository_and_no_more(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    more = {name: job["permissions"] for name, job in jobs(file).items() if "permissions" in job}
    assert more == ({"publish": {"id-token": "write"}} if file.stem == "release" else {})


@every_workflow
def test_every_job_ends_and_waits_for_jobs_that_exist(file: Path) -> None:
    for name, job in jobs(file).items():
        assert "timeout-minutes" in job, name
        needs = job.get("needs", [])
        assert ({needs} if isinstance(needs, str) else set(needs)) <= jobs(file).keys(), name


def test_nothing_is_published_before_it_is_checked_built_and_tried() -> None:
    release = jobs(ROOT / ".github/workflows/release.yml")
    assert release["publish"]["environment"] == "pypi"
    assert set(release["publish"]["needs"]) == {"build", "smoke", "tox"}
    (tested,) = [step["run"] for step in release["tox"]["steps"] if step.get("run", "").startswith("tox")]
    assert tested == 'tox run -e "${PACKAGE#accel-}"'
    steps = [step["run"] for step in release["build"]["steps"] if "ci." in step.get("run", "")]
    assert [re.findall(r"ci\.\w+(?: build| repair| check)?", step) for step in steps] == [
        ["ci.release_check"],
        ["ci.wheels build"],
        ["ci.wheels repair"],
        ["ci.wheels check"],
    ]


def test_a_wheel_is_tried_on_the_oldest_and_the_newest_python_before_it_is_published() -> None:
    core = workspace.load(ROOT)["accel-core"]
    smoke = jobs(ROOT / ".github/workflows/release.yml")["smoke"]
    assert smoke["strategy"]["matrix"]["python"] == [core.python, core.newest]


@every_teller
def test_a_program_that_is_named_exists_and_takes_those_options(file: Path) -> None:
    for module, rest in re.findall(r"python -m ci\.(\w+)([^|;`)\n]*)", file.read_text(encoding="utf-8")):
        package = ROOT / "ci" / module
        program = package / "__main__.py" if package.is_dir() else package.with_suffix(".py")
        assert program.is_file(), module
        text = program.read_text(encoding="utf-8")
        assert [option for option in re.findall(r"--[a-z-]+", rest) if f'"{option}"' not in text] == [], (
            module
        )


def third_parties(module: str, seen: set[str]) -> set[str]:
    """What a module of ci/ and those of ci/ that it imports take from other distributions on the newest Python."""
    if module in seen:
        return set()
    seen.add(module)
    path = ROOT / module.replace(".", "/")
    tree = ast.parse(
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    )
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    own = {name for name in names if name.startswith("ci.")}
    modules = {
        name if (ROOT / f"{name.replace('.', '/')}.py").exists() else name.rpartition(".")[0] for name in own
    }
    outside = {name.split(".")[0] for name in names - own} - sys.stdlib_module_names - {"tomli", "tomllib"}
    return outside.union(*(third_parties(name, seen) for name in modules if name != "ci"))


@every_workflow
def test_a_job_installs_what_the_programs_it_calls_import(file: Path) -> None:
    called = 0
    for name, job in jobs(file).items():
        runs = "\n".join(step.get("run", "") for step in job["steps"])
        installed = set(" ".join(re.findall(r"pip install (.+)", runs)).split())
        for module in re.findall(r"python -m (ci\.\w+)", runs):
            called += 1
            assert third_parties(module, set()) <= installed, f"{name}: {module}"
    assert called


@every_teller
def test_a_tox_environment_that_is_named_exists(file: Path) -> None:
    named = set(re.findall(r"tox (?:run )?-e ([a-z0-9.-]+)", file.read_text(encoding="utf-8")))
    assert named <= {
        *matrix.tox_environments(ROOT),
        "torch-compat",  # by hand and nightly: large downloads
        "xpu-kernels",  # the same
    }
