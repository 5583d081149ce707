# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Workflows and the action name what exists and hold no credential; checks of a release reject what they should."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import api, smoke, workspace

from .conftest import HEADER, ROOT, Repository, run

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
#: Whatever tells somebody to run a program of ci/.
TELLERS = [*WORKFLOWS, *sorted(ROOT.glob("*.md")), ROOT / "Makefile", ROOT / "tox.ini"]
every_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
every_teller = pytest.mark.parametrize("file", TELLERS, ids=lambda path: path.name)


def jobs(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    return found


@every_workflow
def test_a_workflow_reads_the_repository_and_no_more(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    more = {name: job["permissions"] for name, job in jobs(file).items() if "permissions" in job}
    assert more == ({"publish": {"id-token": "write"}} if file.stem == "release" else {})


def test_nothing_is_published_before_it_is_checked_built_and_tried() -> None:
    release = jobs(ROOT / ".github/workflows/release.yml")
    assert release["publish"]["environment"] == "pypi"
    assert set(release["publish"]["needs"]) == {"build", "native", "smoke", "tox", "torch"}
    (tested,) = [step["run"] for step in release["tox"]["steps"] if step.get("run", "").startswith("tox")]
    assert tested == 'tox run -e "${PACKAGE#accel-}"'
    steps = [step.get("run", "") for step in release["build"]["steps"]]
    wanted = ["ci.release_check", "ci.wheels build", "ci.wheels repair"]
    wanted += ["twine check", "check-wheel-contents dist"]
    assert [name for step in steps for name in wanted if name in step and "pip" not in step] == wanted


@pytest.mark.more
@pytest.mark.parametrize(
    ("package", "platform", "count"),
    [("accel-cpu", "linux", 2), ("accel-ops", "linux", 2), ("accel-ops", "macos", 1), ("accel-sim", "linux", 10),
     ("accel-rehearse", "linux", 10)],
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


# --- the action `simulate` for other projects: its steps, run as a runner's shell would, test such a project

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "simulate/action.yml").read_text(encoding="utf-8"))
LIBRARY = ROOT / "examples/simulated_ci/library"


def run_steps(project: Path, temp: Path, path: str, **inputs: str) -> str:
    """Run what the action runs; return what its steps print. Steps that use another action are left out."""
    known = {f"inputs.{name}": str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()} | {"runner.temp": str(temp)}
    own = ("PYTEST", "ACCEL_", "PYTHONPATH", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    action, output = str(ROOT / "simulate"), str(temp / "output")
    runner = {"GITHUB_ACTION_PATH": action, "GITHUB_OUTPUT": output, "PATH": path}
    said = ""
    for step in ACTION["runs"]["steps"]:
        if "run" not in step:
            continue
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # what people give is data of a variable, never text of a script
        given = {
            name: re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], value)
            for name, value in step.get("env", {}).items()
        }
        command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
        done = run(*command, cwd=project, env=kept | runner | given)
        said += done.stdout
        assert done.returncode == 0, said + done.stderr
    return said


@pytest.mark.slow
def test_a_project_is_tested_on_two_devices_in_an_environment_with_torch_and_pytest_only(
    tmp_path: Path,
) -> None:
    if shutil.which("c++") is None:
        pytest.skip("not run: no C++ compiler")
    for folder in ("environment", "temp"):
        (tmp_path / folder).mkdir()
    shutil.copytree(LIBRARY, tmp_path / "project")
    uv, python = (sys.executable, "-m", "uv"), tmp_path / "environment/bin/python"
    venv = ("venv", "--quiet", "--clear", "--seed", "--python", sys.executable, tmp_path / "environment")
    run(*uv, *venv, check=True)
    links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
    install = ("pip", "install", "--quiet", "--python", python, "-c", ROOT / "constraints.txt")
    run(*uv, *install, "torch", "numpy", "pytest", env={**os.environ, **links}, check=True)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    for inputs in ({"device": "npu", "devices": "1"}, {"device": "hpu", "run": "PT_HPU_LAZY_MODE=0 pytest"}):
        assert "5 passed" in run_steps(tmp_path / "project", tmp_path / "temp", path, **inputs)
    assert (tmp_path / "temp/output").read_text(encoding="utf-8").startswith("key=2.")


# --- the public interface since the last release

VENDOR = "packages/accel-core/src/accel_core/vendor.py"
RELEASED = "INTERFACE_VERSION = 3\n\ndef record(key: str) -> None: ...\n"


@pytest.fixture
def released(repository: Repository) -> Repository:
    """A core with the five public packages, released as 0.2.0."""
    for name in api.PUBLIC:
        repository.write(f"packages/accel-core/src/accel_core/{name}.py")
    repository.write(VENDOR, HEADER + RELEASED)
    repository.commit()
    repository.git("tag", "accel-core-v0.2.0")
    return repository


@pytest.mark.parametrize(
    ("now", "broken"),
    [
        (RELEASED + "\ndef more() -> None: ...\n", []),
        (
            RELEASED.replace("key: str", "key: str, more: int"),
            ["record(more): Parameter was added as required"],
        ),
        (RELEASED.replace("record", "_record"), ["record: Public object was removed"]),
        (RELEASED.replace("record", "renamed").replace("3", "4"), []),
    ],
)
def test_what_breaks_a_vendor_package_needs_a_new_interface_number(
    released: Repository, now: str, broken: list[str]
) -> None:
    released.write(VENDOR, HEADER + now)
    released.commit()
    found = [str(problem) for problem in api.check(released.root)]
    assert len(found) == len(broken)
    assert all(what in text for what, text in zip(broken, found, strict=True))


# --- the trial of an installed package, in this environment, with answers that it could get elsewhere

CANDIDATE = {"key": "cpu", "package": "accel-cpu", "state": "present", "runtime": True, "reason": "2 CPUs"}
CLASS = "accel_cpu.accelerator.CPU_Accelerator"


def answers(monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    """Let each program have the output that it has with a good wheel, but for those given."""
    known = {
        "doctor": {"candidates": [CANDIDATE]},
        "deepspeed": [CLASS, True],
        "library": ["wheel"] * 2,
        **given,
    }

    def python(*words: str, **_: object) -> str:
        return next((json.dumps(each) for name, each in known.items() if name in " ".join(words)), "")

    monkeypatch.setattr(smoke, "python", python)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"doctor": {"candidates": []}}, "accel doctor does not offer cpu"),
        ({"doctor": {"candidates": [{**CANDIDATE, "state": "broken"}]}}, "accel doctor does not offer cpu"),
        ({"deepspeed": ["deepspeed.accelerator.CPU_Accelerator", True]}, "DeepSpeed does not use"),
        ({"deepspeed": [CLASS, False]}, "DeepSpeed does not use"),
        ({"library": ["compiled on this machine", "wheel"]}, "the CPU kernels are not the library"),
    ],
)
def test_each_thing_that_does_not_work_is_reported(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], what: str
) -> None:
    answers(monkeypatch)
    assert list(smoke.check("accel-cpu", True)) == []
    answers(monkeypatch, **given)
    assert [problem for problem in smoke.check("accel-cpu", True) if str(problem).startswith(what)]


def test_a_missing_runtime_fails_only_when_the_device_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {**CANDIDATE, "state": "absent", "runtime": False}
    answers(monkeypatch, doctor={"candidates": [absent]})
    assert list(smoke.check("accel-cpu", False)) == []
    assert "not verified on this machine: DS_ACCELERATOR=cpu gives accel-cpu" in capsys.readouterr().out
    (problem,) = smoke.check("accel-cpu", True)
    assert str(problem).startswith("not verified")
