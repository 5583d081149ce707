# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The smoke test against pretended packages, in real environments, with nothing from the network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci import smoke, workspace
from ci.problem import CheckError, Problem
from ci.tests import toys
from ci.tests.repository import Repository
from ci.workspace import Package


@pytest.fixture
def toy(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A workspace with accel-toy, and the wheels of it in the folder `wheels`, which is all that pip sees."""
    repository.package("accel-toy", requires=("accel-core>=0.1,<1",), vendor="toy")
    repository.write("constraints.txt", "deepspeed==0.19.*\n")
    wheels = repository.root / "wheels"
    toys.write_all(wheels)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.chdir(repository.root)
    return repository


@dataclass(frozen=True)
class Environment:
    """accel-toy installed once; a test changes an installed file and sees what the smoke test says."""

    installed: smoke.Installed
    package: Package
    site: Path

    def write(self, file: str, content: bytes) -> None:
        """Change an installed file. Python tells stale byte code by size and second only: none is left of it."""
        path = self.site / file
        path.write_bytes(content)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def problems(self, *, require_device: bool = False) -> list[Problem]:
        return list(smoke.check(self.installed, self.package, require_device))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    root = tmp_path_factory.mktemp("smoke")
    repository = Repository(root / "checkout")
    repository.package("accel-core", version="0.2.0")
    repository.package("accel-toy", requires=("accel-core>=0.1,<1",), vendor="toy")
    toys.write_all(root / "wheels")
    (root / "none.txt").touch()
    step = ["--no-index", *(str(path) for path in sorted((root / "wheels").glob("*.whl")))]
    installed = smoke.install(root, [step], root / "none.txt")
    (site,) = root.glob("venv/lib/python*/site-packages")
    return Environment(installed, workspace.load(repository.root)["accel-toy"], site)


@pytest.fixture
def environment(pristine: Environment) -> Iterator[Environment]:
    """The same with every installed file put back afterwards."""
    names = ("accel_core*", "accel_toy*", "deepspeed*")
    files = [path for name in names for path in pristine.site.glob(f"{name}/*") if path.is_file()]
    before = {str(path.relative_to(pristine.site)): path.read_bytes() for path in files}
    yield pristine
    for file, content in before.items():
        pristine.write(file, content)


@pytest.mark.parametrize("order", smoke.ORDERS)
def test_a_good_wheel_passes_in_either_order(
    toy: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    assert smoke.main(["accel-toy", "--wheels", "wheels", "--order", order], toy.root) == 0
    output = capsys.readouterr().out
    steps = [line for line in output.splitlines() if line.startswith("pip install")]
    assert ["deepspeed" in step for step in steps] == [order == "deepspeed-first", order == "vendor-first"]
    assert "verified: pip check" in output
    assert "verified: import accel_toy; it declares toy" in output
    assert "verified: DS_ACCELERATOR=toy gives accel_toy.accelerator.Toy" in output


def test_what_pip_cannot_install_is_reported(toy: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke.main(["accel-toy", "--wheels", "wheels", "--deepspeed", "0.18.9"], toy.root) == 1
    error = capsys.readouterr().err
    assert "pip install deepspeed==0.18.9 failed" in error
    assert all(part in error for part in ("found:", "expected:", "do:"))


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("accel_toy/__init__.py", "raise OSError('libtoy.so')", "vendors accel-toy accel_toy failed"),
        ("accel_toy/vendor.py", "", "vendors accel-toy accel_toy failed"),
        ("accel_core/__init__.py", "def main(): raise RuntimeError('no doctor')", "accel doctor --json failed"),
        ("accel_core/__init__.py", "def main(): print('chosen: toy')", "accel doctor --json failed"),
        ("accel_toy/vendor.py", toys.VENDOR.replace('"present"', '"broken"'), "accel doctor does not offer toy"),
        ("accel_toy/vendor.py", toys.VENDOR.replace('"accel-toy"', '"other"'), "accel doctor does not offer toy"),
        ("accel_toy/accelerator.py", "Toy = type('Toy', (), {'__module__': 'other'})", "DeepSpeed does not use"),
        ("deepspeed/accelerator.py", "from accel_toy.accelerator import Toy as get_accelerator", "DeepSpeed does not"),
        ("deepspeed/accelerator.py", "raise ValueError('no toy')", "DS_ACCELERATOR=toy accelerator failed"),
        ("accel_toy-0.1.0.dist-info/METADATA", "Name: accel-toy\nVersion: 0.1.0\nRequires-Dist: gone", "pip check"),
    ],
)  # fmt: skip
def test_each_thing_that_does_not_work_is_reported(
    environment: Environment, file: str, text: str, what: str
) -> None:
    assert environment.problems() == []
    environment.write(file, text.encode())
    problems = environment.problems()
    assert [problem.what for problem in problems if problem.what.startswith(what)], problems


def test_a_missing_runtime_is_said_and_fails_only_when_the_device_is_required(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = toys.VENDOR.replace('"present"', '"absent"').replace('"runtime": True', '"runtime": False')
    environment.write("accel_toy/vendor.py", absent.encode())
    assert environment.problems() == []
    assert "not verified on this machine: DS_ACCELERATOR=toy gives the accel" in capsys.readouterr().out
    (problem,) = environment.problems(require_device=True)
    assert "not verified" in problem.what


def test_a_package_without_an_accelerator_is_tried_by_detection(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.write("accel_toy-0.1.0.dist-info/entry_points.txt", b"")
    assert environment.problems() == []
    assert "verified: detection gives builtins.object" in capsys.readouterr().out


@pytest.mark.parametrize("reason", ["built library of the wheel", "plain torch: no C++ compiler on PATH"])
def test_the_host_kernels_have_to_be_the_library_of_the_wheel(
    environment: Environment, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    (environment.site / "accel_ops").mkdir(exist_ok=True)
    text = f"class Loaded:\n    reason = {reason!r}\n\nload = Loaded\nWHEEL = 'built library of the wheel'\n"
    environment.write("accel_ops/library.py", text.encode())
    try:
        problems = environment.problems()
    finally:
        shutil.rmtree(environment.site / "accel_ops")
    verified = "the host kernels are the library of" in capsys.readouterr().out
    assert (verified, [problem.found for problem in problems]) == (
        (True, []) if reason == "built library of the wheel" else (False, [reason])
    )


def test_wheels_that_are_missing_are_all_named_with_how_to_build_them(repository: Repository) -> None:
    packages = workspace.load(repository.root)
    folder = repository.root / "empty"
    with pytest.raises(CheckError) as error:
        smoke.find_wheels(packages, "accel-cpu", folder, index=False)
    assert error.value.problem.expected == "accel-core 0.2.0, accel-cpu 0.1.0"
    assert "python -m ci.wheels build accel-core accel-cpu --out" in error.value.problem.do


def test_siblings_come_from_the_index_when_asked(repository: Repository, tmp_path: Path) -> None:
    own = toys.write_wheel(tmp_path, "accel-cpu", {})
    toys.write_wheel(tmp_path, "accel-core", {}, version="0.2.0")
    packages = workspace.load(repository.root)
    assert smoke.find_wheels(packages, "accel-cpu", tmp_path, index=True) == [own]
    assert len(smoke.find_wheels(packages, "accel-cpu", tmp_path, index=False)) == 2


def test_a_wheel_of_another_version_does_not_serve(repository: Repository, tmp_path: Path) -> None:
    toys.write_wheel(tmp_path, "accel-core", {}, version="0.1.9")
    (tmp_path / "not-a-wheel-name.whl").touch()
    with pytest.raises(CheckError, match=r"accel_core-0\.1\.9"):
        smoke.find_wheels(workspace.load(repository.root), "accel-core", tmp_path, index=False)


@pytest.mark.parametrize(
    ("version", "requirement"),
    [
        (None, "deepspeed<0.20,>=0.18"),
        ("0.18.9", "deepspeed==0.18.9"),
        ("git+https://example.com/DeepSpeed", "git+https://example.com/DeepSpeed"),
    ],
)
def test_deepspeed_is_taken_by_version_by_requirement_or_as_core_supports_it(
    repository: Repository, version: str | None, requirement: str
) -> None:
    assert smoke.deepspeed_requirement(workspace.load(repository.root), version) == requirement


def test_variables_that_steer_selection_or_imports_do_not_reach_the_environment() -> None:
    ours = {"DS_ACCELERATOR": "npu", "ACCEL_SKIP": "npu", "PYTHONPATH": "/x", "VIRTUAL_ENV": "/y"}
    assert smoke.clean({**ours, "PATH": "/bin", "PIP_NO_INDEX": "1"}) == {"PATH": "/bin", "PIP_NO_INDEX": "1"}
