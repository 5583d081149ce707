# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A release: what is checked, the wheels, its rehearsal, the public interface, and the trial of what is installed."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ci import api, release_check, smoke, wheels

from .conftest import HEADER, ORIGIN, ROOT, Repository, run

TAG = "accel-cpu-v0.1.0"
CPU = "packages/accel-cpu"


def broken(repository: Repository, tag: str = TAG) -> list[str]:
    """Each rule that does not hold."""
    return [str(problem) for problem in release_check.problems(repository.root, tag)]


def test_a_tag_on_this_commit_passes_and_on_another_fails(repository: Repository) -> None:
    repository.git("tag", "-a", "-m", "release", TAG)
    assert broken(repository) == []
    repository.write(f"{CPU}/src/accel_cpu/new.py")
    assert broken(repository) == ["commit all changes, or release from a fresh clone"]
    repository.commit("one more")
    assert broken(repository) == [f"check out {TAG}, which is another commit"]


@pytest.mark.parametrize("tag", ["v0.1.0", "accel-cpu-0.1.0", "accel-gpu-v0.1.0"])
def test_tag_of_no_package_names_those_there_are(repository: Repository, tag: str) -> None:
    with pytest.raises(SystemExit, match="there are accel-alone, accel-both, accel-core, accel-cpu"):
        broken(repository, tag)


def test_tag_of_another_version_fails(repository: Repository) -> None:
    assert "set __version__ of accel-cpu, which is 0.1.0" in broken(repository, "accel-cpu-v0.1")


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


@pytest.mark.parametrize(
    "range_", [">=0.2,<0.3", ">=0.2,<0.5", ">=0.1,<0.4", "==0.2.0", "", ">=0.2,<0.4,!=0.2.5", None]
)
def test_core_is_required_as_a_range_of_the_releases_that_take_the_package(
    repository: Repository, range_: str | None
) -> None:
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
    repository.commit()
    assert (not broken(repository)) == passes


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


@pytest.mark.slow
def test_a_release_of_a_package_is_rehearsed_from_the_changelog_to_the_roll_back(tmp_path: Path) -> None:
    for module in ("check_wheel_contents", "uv"):
        pytest.importorskip(module, reason="not run: requirements-dev.txt is newer than this environment")
    done = run(sys.executable, "-m", "ci.rehearse", "accel-port", "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'roll back': '0.1.0'" in done.stdout


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


@pytest.mark.more
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


def test_core_alone_leaves_the_cpu_to_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    answers(monkeypatch, deepspeed=["deepspeed.accelerator.cpu_accelerator.CPU_Accelerator", True])
    assert list(smoke.check("accel-core", True)) == []


def test_a_missing_runtime_fails_only_when_the_device_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {**CANDIDATE, "state": "absent", "runtime": False}
    answers(monkeypatch, doctor={"candidates": [absent]})
    assert smoke.main(["accel-cpu"]) == 0
    assert "not verified on this machine: DS_ACCELERATOR=cpu gives accel-cpu" in capsys.readouterr().out
    assert smoke.main(["accel-cpu", "--require-device"]) == 1
    assert "not verified" in capsys.readouterr().err
