# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The workflows name only what exists, hold no credential, and may do no more than they need."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import workspace
from ci.tests.repository import ROOT, run

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
#: Whatever tells somebody to run a program of ci/.
TELLERS = [*WORKFLOWS, *sorted(ROOT.glob("*.md")), ROOT / "Makefile", ROOT / "tox.ini"]
every_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
every_teller = pytest.mark.parametrize("file", TELLERS, ids=lambda path: path.name)


def jobs(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    return found


def test_there_are_these_workflows() -> None:
    assert [file.stem for file in WORKFLOWS] == ["nightly", "release", "test", "weekly"]


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


@every_workflow
def test_make_knows_what_it_is_asked_for(file: Path) -> None:
    for line in re.findall(r"run: (make .*)", file.read_text(encoding="utf-8")):
        done = run(*line.split(), "--dry-run", env={"PATH": os.defpath})
        assert done.returncode == 0, done.stderr


def test_nothing_is_published_before_it_is_checked_built_and_tried() -> None:
    release = jobs(ROOT / ".github/workflows/release.yml")
    assert release["publish"]["environment"] == "pypi"
    assert set(release["publish"]["needs"]) == {"build", "native", "smoke", "tox"}
    (tested,) = [step["run"] for step in release["tox"]["steps"] if step.get("run", "").startswith("tox")]
    assert tested == 'tox run -e "${PACKAGE#accel-}"'
    steps = [step.get("run", "") for step in release["build"]["steps"]]
    wanted = ["ci.release_check", *(f"ci.wheels {what}" for what in ("build", "repair", "sbom"))]
    wanted += ["twine check", "check-wheel-contents dist"]
    assert [name for step in steps for name in wanted if name in step and "pip" not in step] == wanted


@pytest.mark.more
@pytest.mark.parametrize(
    ("package", "platform", "count"),
    [("accel-cpu", "linux", 2), ("accel-ops", "linux", 2), ("accel-ops", "macos", 1), ("accel-sim", "linux", 8)],
)  # fmt: skip
def test_cibuildwheel_knows_what_to_build(package: str, platform: str, count: int) -> None:
    pytest.importorskip("cibuildwheel", reason="not run: requirements-dev.txt is newer than this environment")
    archs = {"linux": "x86_64,aarch64", "macos": "arm64"}[platform]
    command = (sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform)
    done = run(*command, "--archs", archs, f"packages/{package}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == count, done.stdout


def test_zizmor_finds_nothing_in_workflows_and_actions() -> None:
    program = shutil.which("zizmor", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("not run: zizmor is not here; requirements-dev.txt is newer than this environment")
    found = run(program, "--offline", "--no-progress", "--quiet", ROOT)
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_package_and_every_environment_of_tox_is_tested() -> None:
    packages = workspace.load(ROOT)
    test = jobs(ROOT / ".github/workflows/test.yml")
    common, vendor = (yaml.safe_load(step["with"]["filters"]) for step in test["changes"]["steps"][1:])
    vendors = {name.removeprefix("accel-") for name, package in packages.items() if package.vendors}
    assert {key: f"packages/accel-{key}/**" for key in vendors} == vendor
    assert {*re.findall(r"\w+", common["common"][-1])} == {"packages", "accel", *vendors}
    assert {*re.findall(r'"(\w+)"', test["changes"]["outputs"]["vendors"])} == vendors
    rows = [test[job]["strategy"]["matrix"] for job in ("always", "workspace")]
    tested = {name for row in rows for name in row["env"]} | {row["env"] for row in rows[1]["include"]}
    environments = vendors | {name for names in tested for name in names.split(",")}
    listed = run(sys.executable, "-m", "tox", "list", "-d", "--no-desc", "-q", check=True).stdout.split()
    assert environments == set(listed)
    assert {name.removeprefix("accel-") for name in packages} <= environments


@every_teller
def test_a_program_that_is_named_exists_and_takes_those_options(file: Path) -> None:
    for module, rest in re.findall(r"python -m ci\.(\w+)([^|;`)\n]*)", file.read_text(encoding="utf-8")):
        program = ROOT / "ci" / f"{module}.py"
        assert program.is_file(), module
        text = program.read_text(encoding="utf-8")
        assert [option for option in re.findall(r"--[a-z-]+", rest) if f'"{option}"' not in text] == [], (
            module
        )


@every_teller
def test_a_tox_environment_that_is_named_exists(file: Path) -> None:
    named = set(re.findall(r"tox (?:run )?-e ([a-z0-9.-]+)", file.read_text(encoding="utf-8")))
    settings = (ROOT / "tox.ini").read_text(encoding="utf-8")
    assert [name for name in named if not re.search(rf"\b{re.escape(name)}\b", settings)] == []
