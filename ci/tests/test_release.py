# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A release: what is checked, the wheels, and its rehearsal."""

import sys
import zipfile
from pathlib import Path

import pytest

from ci import release_check, wheels, workspace

from .conftest import HEADER, ORIGIN, ROOT, Repository, run

TAG = "accel-cpu-v0.1.0"
CPU = "packages/accel-cpu"


def broken(repository: Repository, tag: str = TAG) -> list[str]:
    """Each rule that does not hold."""
    return [str(problem) for problem in release_check.problems(repository.root, tag)]


def test_a_tag_on_this_commit_passes_and_on_another_fails(repository: Repository) -> None:
    repository.git("tag", "-a", "-m", "release", TAG)
    assert broken(repository) == []
    repository.commit("one more")
    assert broken(repository) == [f"check out {TAG}, which is another commit"]


def test_uncommitted_work_fails(repository: Repository) -> None:
    repository.write(f"{CPU}/src/accel_cpu/new.py")
    assert broken(repository) == ["commit all changes, or release from a fresh clone"]


@pytest.mark.parametrize("tag", ["v0.1.0", "accel-cpu", "accel-cpu-0.1.0", "accel-gpu-v0.1.0"])
def test_tag_of_no_package_names_those_there_are(repository: Repository, tag: str) -> None:
    with pytest.raises(SystemExit, match="there are accel-alone, accel-both, accel-core, accel-cpu"):
        broken(repository, tag)


@pytest.mark.parametrize("version", ["0.1.0-rc1", "0.1", "1+x"])
def test_tag_of_another_version_fails(repository: Repository, version: str) -> None:
    assert "set __version__ of accel-cpu, which is 0.1.0" in broken(repository, f"accel-cpu-v{version}")


BUILD = f"run `cd {CPU} && towncrier build`"
CHANGELOG = f"{BUILD}: no dated section for 0.1.0 with text"
WRITTEN = [
    ("src/accel_cpu/__about__.py", f'{HEADER}__version__ = "0.1.1"\n', "set __version__ of accel-cpu, which is 0.1.1"),
    ("CHANGELOG.md", "# Changelog\n", CHANGELOG),
    ("CHANGELOG.md", "## 0.1.0\n\n- No date.\n", CHANGELOG),
    ("CHANGELOG.md", "## 0.1.0.1 (2026-01-31)\n\n- Another version.\n", CHANGELOG),
    ("CHANGELOG.md", "## 0.1.0 (2026-01-31)\n\n\n## 0.0.9 (2026-01-01)\n\n- The section above is empty.\n", CHANGELOG),
    ("changelog.d/7.feature.md", "New.\n", f"{BUILD}: changelog.d holds 7.feature.md"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "what"), WRITTEN)
def test_a_version_or_a_changelog_of_another_release_fails(
    repository: Repository, path: str, text: str, what: str
) -> None:
    repository.write(f"{CPU}/{path}", text)
    repository.commit()
    assert broken(repository) == [what]


#: None: core is not required at all.
WRONG = (">=0.2,<0.3", ">=0.2,<0.5", ">=0.1,<0.4", "==0.2.0", "", ">=0.2,<0.4,!=0.2.5", None)


@pytest.mark.parametrize("range_", WRONG)
def test_core_is_required_as_a_range_of_the_releases_that_take_the_package(
    repository: Repository, range_: str | None
) -> None:
    assert broken(repository) == []
    requires = () if range_ is None else (f"accel-core{range_}",)
    repository.package("accel-cpu", requires=requires, vendor="cpu")
    repository.commit()
    assert broken(repository) == [f"require accel-core>=0.2,<0.4 in {CPU}/pyproject.toml"]


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
    found = list(release_check.unfit(repository.root, packages, packages["accel-cpu"]))
    assert (not found) == passes


@pytest.mark.parametrize(("number", "ready"), [(2, False), (3, True), (4, False)])
def test_core_has_the_interface_number_of_its_release(
    repository: Repository, number: int, ready: bool
) -> None:
    source = "packages/accel-core/src/accel_core/vendor.py"
    repository.write(source, f"{HEADER}INTERFACE_VERSION = {number}\n")
    repository.commit()
    what = f"release 0.{number - 1}.*, or correct INTERFACE_VERSION: it is {number}"
    assert broken(repository, "accel-core-v0.2.0") == ([] if ready else [what])


def test_an_address_that_is_not_stated_fails(repository: Repository) -> None:
    file = f"{CPU}/pyproject.toml"
    text = (repository.root / file).read_text(encoding="utf-8")
    repository.write(file, text.replace(ORIGIN, 'authors = [{ name = "accel contributors" }]\n'))
    repository.commit()
    assert broken(repository) == [f"add to [project] of {file}: Changelog, Issues, Source, email"]


def test_every_broken_rule_is_reported_at_once(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.package("accel-cpu", version="0.5.0", requires=("accel-core==0.2.0",), vendor="cpu")
    repository.write(f"{CPU}/changelog.d/7.feature.md", "New.\n")
    assert release_check.main([TAG], repository.root) == 1
    assert len(capsys.readouterr().err.splitlines()) == 5


@pytest.mark.more
def test_wheels_are_repaired_reproducible_and_name_their_components(tmp_path: Path) -> None:
    builds = []
    for name in ("first", "second"):
        wheels.build(ROOT, ["accel-mps"], tmp_path / name, "--no-isolation", "--quiet")
        wheels.repair(tmp_path / name)
        builds.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert builds[0] == builds[1]
    (wheel,) = (tmp_path / "first").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (sbom,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        text = archive.read(sbom).decode()
        assert sbom in archive.read(next(n for n in archive.namelist() if n.endswith("/RECORD"))).decode()
    assert '"purl": "pkg:pypi/accel-mps@' in text
    assert '"value": "accel-core<' in text


# --- its rehearsal

PORT = workspace.load(ROOT)["accel-port"]


@pytest.mark.slow
def test_a_release_of_a_package_is_rehearsed_from_the_changelog_to_the_roll_back(tmp_path: Path) -> None:
    for module in ("check_wheel_contents", "uv"):
        pytest.importorskip(module, reason="not run: requirements-dev.txt is newer than this environment")
    done = run(sys.executable, "-m", "ci.rehearse", "accel-port", "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'roll back': '0.1.0'" in done.stdout
    changelog = tmp_path / "kept/clone/packages/accel-port/CHANGELOG.md"
    first = f"## {PORT.version} ("
    assert first in changelog.read_text(encoding="utf-8")
