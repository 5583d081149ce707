# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import pytest

from ci import release_check, workspace
from ci.problem import Problem
from ci.tests.repository import HEADER, ORIGIN, Repository

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


def committed(repository: Repository, path: str, text: str) -> list[str]:
    """What is broken once a file of accel-cpu has this text."""
    repository.write(f"{CPU}/{path}", text)
    repository.commit()
    return broken(repository)


@pytest.mark.parametrize(
    "tag", ["v0.1.0", "accel-cpu", "accel-cpu-0.1.0", "accel-cpu-v0.1.0-rc1", "accel-cpu-v1+x"]
)
def test_what_is_not_a_release_tag_fails(repository: Repository, tag: str) -> None:
    assert broken(repository, tag) == [f"{tag!r} is not a release tag"]


def test_an_unknown_package_is_named_with_those_there_are(repository: Repository) -> None:
    (problem,) = problems(repository, "accel-gpu-v0.1.0")
    assert "accel-gpu" in problem.what
    assert problem.expected == "one of accel-alone, accel-both, accel-core, accel-cpu"


def test_another_version_than_the_tags_fails(repository: Repository) -> None:
    found = committed(repository, "src/accel_cpu/__about__.py", f'{HEADER}__version__ = "0.1.1"\n')
    assert found == ["the tag's version is not that of accel-cpu"]


@pytest.mark.parametrize(
    "changelog",
    [
        "# Changelog\n",
        "## 0.1.0\n\n- No date.\n",
        "## 0.1.0.1 (2026-01-31)\n\n- Another version.\n",
        "## 0.1.0 (2026-01-31)\n\n\n## 0.0.9 (2026-01-01)\n\n- The section above is empty.\n",
    ],
)
def test_a_changelog_without_a_dated_section_that_says_something_fails(
    repository: Repository, changelog: str
) -> None:
    found = committed(repository, "CHANGELOG.md", changelog)
    assert found == ["the changelog of accel-cpu has no section for 0.1.0"]


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
