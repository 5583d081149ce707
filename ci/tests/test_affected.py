# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from ci import affected
from ci.tests.repository import Repository

ALL = ["accel-alone", "accel-both", "accel-core", "accel-cpu"]


def packages_after(
    repository: Repository, capsys: pytest.CaptureFixture[str], base: str = "HEAD~1"
) -> list[str]:
    assert affected.main(["--base", base], repository.root) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sorted(answer["why"]) == answer["packages"]
    found: list[str] = answer["packages"]
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("packages/accel-core/src/accel_core/env.py", ALL),
        ("shared/csrc/include/accel/adam.h", ALL),
        ("pyproject.toml", ALL),
        ("tox.ini", ALL),
        ("constraints.txt", ALL),
        ("ci/matrix.py", ALL),
        ("a_file_nobody_thought_of", ALL),
        ("packages/accel-cpu/src/accel_cpu/traits.py", ["accel-both", "accel-cpu"]),
        ("packages/accel-cpu/pyproject.toml", ["accel-both", "accel-cpu"]),
        ("packages/accel-both/tests/test_it.py", ["accel-both"]),
        ("packages/accel-alone/src/accel_alone/x.py", ["accel-alone"]),
        ("packages/accel-cpuish/x.py", ALL),
        ("docs/guide/index.md", []),
        ("CONTRIBUTING.md", []),
        ("packages/accel-core/README.md", []),
        ("packages/accel-cpu/changelog.d/7.feature.md", []),
        ("packages/accel-cpu/src/accel_cpu/template.md", ["accel-both", "accel-cpu"]),
    ],
)
def test_one_changed_file_affects_what_stands_on_it(
    repository: Repository, capsys: pytest.CaptureFixture[str], path: str, expected: list[str]
) -> None:
    if path.endswith("pyproject.toml") and path.startswith("packages"):
        repository.write(path, (repository.root / path).read_text() + "\n# changed\n")
    else:
        repository.write(path, "changed\n")
    repository.commit()
    assert packages_after(repository, capsys) == expected


def test_the_testkit_affects_all_for_all_are_tested_with_it(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.package("accel-testkit", requires=("accel-core>=0.1,<1",))
    repository.commit()
    assert packages_after(repository, capsys) == [*ALL, "accel-testkit"]


def test_an_empty_range_affects_nothing(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert packages_after(repository, capsys, "HEAD") == []


def test_a_file_moved_between_packages_affects_both(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = "x = 1\n" * 50
    repository.write("packages/accel-alone/src/accel_alone/moved.py", moved)
    repository.commit()
    repository.remove("packages/accel-alone/src/accel_alone/moved.py")
    repository.write("packages/accel-both/src/accel_both/moved.py", moved)
    repository.commit()
    assert packages_after(repository, capsys) == ["accel-alone", "accel-both"]


def test_a_removed_package_affects_all_that_are_left(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.git("rm", "-q", "-r", "packages/accel-alone")
    repository.commit()
    assert packages_after(repository, capsys) == ["accel-both", "accel-core", "accel-cpu"]


def test_only_the_branch_counts_not_what_main_did_meanwhile(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.git("switch", "-q", "-c", "branch")
    repository.write("packages/accel-both/new.py")
    repository.commit()
    repository.git("switch", "-q", "main")
    repository.write("packages/accel-core/new.py")
    repository.commit()
    assert affected.main(["--base", "main", "--head", "branch"], repository.root) == 0
    assert json.loads(capsys.readouterr().out)["packages"] == ["accel-both"]


@pytest.mark.parametrize("revision", ["no-such-branch", "--output=stolen", "0" * 40])
def test_an_unknown_base_is_an_error_in_four_parts(
    repository: Repository, capsys: pytest.CaptureFixture[str], revision: str
) -> None:
    assert affected.main([f"--base={revision}"], repository.root) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(part in captured.err for part in (revision, "found:", "expected:", "do:"))
    assert not (repository.root / "stolen").exists()
