# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A release: what is checked, the wheels, and its rehearsal."""

import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from ci import rehearse, release_check, wheels, workspace
from ci.problem import Problem

from .conftest import HEADER, ORIGIN, ROOT, Repository, run

TAG = "accel-cpu-v0.1.0"
CPU = "packages/accel-cpu"


def broken(repository: Repository, tag: str = TAG) -> list[str]:
    return [problem.what for problem in problems(repository, tag)]


def problems(repository: Repository, tag: str) -> list[Problem]:
    """Those that are listed, and the one that is raised."""
    found: list[Problem] = []
    try:
        found.extend(release_check.problems(repository.root, tag))
    except Problem as last:
        found.append(last)
    return found


def test_a_package_that_is_ready_passes(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert release_check.main([TAG], repository.root) == 0
    assert capsys.readouterr().out == f"{TAG}: ready to release\n"


def test_a_tag_on_this_commit_passes_and_on_another_fails(repository: Repository) -> None:
    repository.git("tag", "-a", "-m", "release", TAG)
    assert broken(repository) == []
    repository.commit("one more")
    assert broken(repository) == [f"the tag {TAG} is not here"]


def test_uncommitted_work_fails(repository: Repository) -> None:
    repository.write(f"{CPU}/src/accel_cpu/new.py")
    assert broken(repository) == ["the working tree is not what HEAD says"]


@pytest.mark.parametrize(
    "tag", ["v0.1.0", "accel-cpu", "accel-cpu-0.1.0", "accel-cpu-v0.1.0-rc1", "accel-cpu-v1+x"]
)
def test_what_is_not_a_release_tag_fails(repository: Repository, tag: str) -> None:
    assert broken(repository, tag) == [f"{tag!r} is not a release tag"]


def test_an_unknown_package_is_named_with_those_there_are(repository: Repository) -> None:
    (problem,) = problems(repository, "accel-gpu-v0.1.0")
    assert "accel-gpu" in problem.what
    assert problem.expected == "one of accel-alone, accel-both, accel-core, accel-cpu"


CHANGELOG = "the changelog of accel-cpu has no section for 0.1.0"
WRITTEN = [
    ("src/accel_cpu/__about__.py", f'{HEADER}__version__ = "0.1.1"\n', "the tag's version is not that of accel-cpu"),
    ("CHANGELOG.md", "# Changelog\n", CHANGELOG),
    ("CHANGELOG.md", "## 0.1.0\n\n- No date.\n", CHANGELOG),
    ("CHANGELOG.md", "## 0.1.0.1 (2026-01-31)\n\n- Another version.\n", CHANGELOG),
    ("CHANGELOG.md", "## 0.1.0 (2026-01-31)\n\n\n## 0.0.9 (2026-01-01)\n\n- The section above is empty.\n", CHANGELOG),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "what"), WRITTEN)
def test_a_version_or_a_changelog_of_another_release_fails(
    repository: Repository, path: str, text: str, what: str
) -> None:
    repository.write(f"{CPU}/{path}", text)
    repository.commit()
    assert broken(repository) == [what]


def test_a_fragment_left_over_fails_and_is_named(repository: Repository) -> None:
    repository.write(f"{CPU}/changelog.d/7.feature.md", "New.\n")
    repository.commit()
    (problem,) = problems(repository, TAG)
    assert problem.what == "changes of accel-cpu are not in its changelog yet"
    assert "7.feature.md" in problem.found


#: None: core is not required at all.
WRONG = (
    ">=0.2,<0.3", ">=0.2,<0.5", ">=0.2,<1", ">=0.1,<0.4", "==0.2.0", "==0.2.*", "~=0.2", ">=0.1", "",
    ">=0.2,<0.4,!=0.2.5", None,
)  # fmt: skip


@pytest.mark.parametrize("range_", WRONG)
def test_core_is_required_as_a_range_of_the_releases_that_take_the_package(
    repository: Repository, range_: str | None
) -> None:
    assert broken(repository) == []
    requires = () if range_ is None else (f"accel-core{range_}",)
    repository.package("accel-cpu", requires=requires, vendor="cpu")
    repository.commit()
    (problem,) = problems(repository, TAG)
    what = "accel-cpu does not require accel-core as a range that admits the one in this tree"
    assert (problem.what, problem.expected) == (what, "accel-core>=0.2,<0.4; never ==")


@pytest.mark.parametrize(
    ("number", "range_", "passes"),
    [(3, ">=0.2,<0.4", True), (2, ">=0.1,<0.3", True), (2, ">=0.2,<0.3", True), (2, ">=0.2,<0.4", False)],
)
def test_the_range_follows_the_number_in_the_record(
    repository: Repository, number: int, range_: str, passes: bool
) -> None:
    repository.package("accel-cpu", requires=(f"accel-core{range_}",), vendor="cpu")
    record = f"{HEADER}VENDOR = Vendor(\n    interface={number},\n)\n"
    repository.write(f"{CPU}/src/accel_cpu/vendor.py", record)
    packages = workspace.load(repository.root)
    found = list(release_check.check_siblings(repository.root, packages, packages["accel-cpu"]))
    assert (not found) == passes


@pytest.mark.parametrize(("number", "ready"), [(2, False), (3, True), (4, False)])
def test_core_has_the_interface_number_of_its_release(
    repository: Repository, number: int, ready: bool
) -> None:
    source = "packages/accel-core/src/accel_core/vendor.py"
    repository.write(source, f"{HEADER}INTERFACE_VERSION = {number}\n")
    repository.commit()
    what = "accel-core 0.2.0 does not have the interface number of that release"
    assert (broken(repository, "accel-core-v0.2.0") == []) == ready
    assert (what in broken(repository, "accel-core-v0.2.0")) != ready


@pytest.mark.parametrize(("range_", "passes"), [(">=0.1,<1", True), (">=0.1,<2", False), ("==0.1.0", False)])
def test_another_package_is_required_until_its_next_major_release(
    repository: Repository, range_: str, passes: bool
) -> None:
    repository.package("accel-both", requires=(f"accel-cpu{range_}",))
    repository.commit()
    assert (broken(repository, "accel-both-v0.1.0") == []) == passes


def test_a_package_that_is_no_vendor_may_stand_alone(repository: Repository) -> None:
    assert broken(repository, "accel-alone-v0.1.0") == []


def test_an_address_that_is_not_stated_fails(repository: Repository) -> None:
    file = f"{CPU}/pyproject.toml"
    text = (repository.root / file).read_text(encoding="utf-8")
    repository.write(file, text.replace(ORIGIN, 'authors = [{ name = "accel contributors" }]\n'))
    repository.commit()
    (problem,) = problems(repository, TAG)
    assert problem.found.endswith("has no Changelog, Issues, Source, email")


def test_every_broken_rule_is_reported_at_once_in_four_parts(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.package("accel-cpu", version="0.5.0", requires=("accel-core==0.2.0",), vendor="cpu")
    repository.write(f"{CPU}/changelog.d/7.feature.md", "New.\n")
    assert release_check.main([TAG], repository.root) == 1
    error = capsys.readouterr().err
    assert [error.count(f"  {part}") for part in ("found:", "expected:", "do:")] == [5, 5, 5]


# --- wheels


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


# --- its rehearsal: its index hides what is yanked, and a step that fails ends its package alone

PORT = workspace.load(ROOT)["accel-port"]


def test_a_yanked_release_is_marked_and_the_others_are_not(tmp_path: Path) -> None:
    files = [tmp_path / f"accel_toy-{name}" for name in ("0.1.0-py3-none-any.whl", "0.1.1.tar.gz")]
    for file in files:
        file.write_text(file.name, encoding="utf-8")
    (tmp_path / "index").mkdir()
    index = rehearse.Index(tmp_path / "index")
    index.publish("accel-toy", files)
    index.yank("accel-toy", Version("0.1.1"))
    with index.served() as url, urllib.request.urlopen(f"{url}accel-toy/") as page:
        lines = [line for line in page.read().decode().splitlines() if "sha256=" in line]
    assert ["data-yanked" in line for line in lines] == [False, True]


def test_a_step_that_fails_ends_the_steps_of_its_package_and_says_why() -> None:
    done: list[str] = []

    def build(*_: object) -> str:
        raise Problem(what="two builds differ", found="a", expected="b", do="c")

    def tag(*_: object) -> str:
        done.append("tag")
        return "tagged"

    act: Any = SimpleNamespace(tag=tag, build=build, publish=lambda *_: done.append("publish"))
    results = rehearse.rehearse(act, PORT, trial=True)
    assert done == ["tag"]
    assert results["tag"] == "tagged"
    assert results["build twice"].startswith("failed: two builds differ")
    page = rehearse.page({"accel-port": results})
    assert "| accel-port | tagged | failed: two builds differ | — |" in page


def test_an_environment_that_cannot_be_made_is_a_failure_of_the_installation(tmp_path: Path) -> None:
    def environment(name: str, python: Path) -> None:
        python.parent.mkdir(parents=True)
        raise Problem(what="no network", found="a", expected="b", do="c")

    def passed(*_: object) -> str:
        return "passed"

    steps = dict.fromkeys(("tag", "build", "publish"), passed)
    act: Any = SimpleNamespace(work=tmp_path, environment=environment, **steps)
    results = rehearse.rehearse(act, PORT, trial=True)
    assert results["check, publish"] == "passed"
    assert results["install"].startswith("failed: no network")
    assert list((tmp_path / "environments").iterdir()) == []


@pytest.mark.slow
def test_a_release_of_a_package_is_rehearsed_from_the_changelog_to_the_roll_back(tmp_path: Path) -> None:
    for module in ("check_wheel_contents", "cyclonedx", "uv"):
        pytest.importorskip(module, reason="not run: requirements-dev.txt is newer than this environment")
    done = run(sys.executable, "-m", "ci.rehearse", "accel-port", "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [*rehearse.RELEASE, *rehearse.TRIAL[:-1]]
    assert [step for step in steps if f"accel-port: {step}: " not in done.stdout] == []
    changelog = tmp_path / "kept/clone/packages/accel-port/CHANGELOG.md"
    first = f"## {PORT.version} ("
    assert first in changelog.read_text(encoding="utf-8")
