# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Breaking changes, planted in a small accel_core with two public packages and a private one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci import check_api, public_api
from ci.problem import CheckError
from ci.tests.repository import HEADER, Repository

ROOT = Path(__file__).parents[2]
CORE = "packages/accel-core/src/accel_core"
VENDOR = """
from dataclasses import dataclass

from accel_core.vendor.probes import in_range

__all__ = ["INTERFACE_VERSION", "Vendor", "in_range"]

INTERFACE_VERSION = 1


@dataclass(frozen=True)
class Vendor:
    key: str
    priority: int = 0

    def order(self, first: int, *, last: int = 0) -> int:
        return self._order(last)

    def _order(self, first: int) -> int:
        return first


def _helper() -> None: ...
"""
PROBES = "def in_range(version: str, range_: str) -> bool: ...\n"
INTENDED = '[2]\n"accel_core.vendor.Vendor.order(first)" = "it was the index"\n'


@pytest.fixture
def api(repository: Repository) -> Repository:
    """The small core, committed; the settings name that commit."""
    repository.write(f"{CORE}/vendor/__init__.py", HEADER + VENDOR)
    repository.write(f"{CORE}/vendor/probes.py", HEADER + PROBES)
    repository.write(f"{CORE}/errors.py", HEADER + "class AccelError(Exception): ...\n")
    repository.write(f"{CORE}/selection/choose.py", HEADER + "def choose(findings: list[str]) -> str: ...\n")
    base = repository.commit("the interface")
    packages = ["accel_core.vendor", "accel_core.device", "accel_core.errors"]
    repository.write("pyproject.toml", f'[tool.accel.api]\npackages = {packages}\nbase = "{base}"\n')
    repository.commit("the settings")
    return repository


def replace(api: Repository, old: str, new: str, file: str = "vendor/__init__.py") -> None:
    text = (api.root / CORE / file).read_text(encoding="utf-8")
    assert old in text
    api.write(f"{CORE}/{file}", text.replace(old, new))


def broken(api: Repository) -> list[str]:
    base = public_api.settings(api.root).base
    return [problem.what for problem in check_api.check(api.root, base, released=False)]


def test_nothing_changed_breaks_nothing(api: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_api.main([], api.root) == 0
    assert "no unlisted breaking change" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("class Vendor:", "class Seller:", "Vendor"),
        ("first: int, *, last", "index: int, *, last", "Vendor.order(first)"),
        ("first: int, *, last: int = 0", "first: int, *, last: int", "Vendor.order(last)"),
        ("first: int, *, last: int = 0", "first: int, last: int, *, more: int", "Vendor.order(more)"),
        ("    key: str\n", "    key: str\n    interface: int\n", "Vendor.__init__(interface)"),
        ("    priority: int = 0\n", "", "Vendor.priority"),
        ('"Vendor", ', "", "Vendor"),
    ],
)
def test_a_change_that_breaks_a_caller_is_told_by_its_name(
    api: Repository, old: str, new: str, name: str
) -> None:
    replace(api, old, new)
    assert f"a change of accel_core.vendor.{name} breaks vendor packages" in broken(api)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def _helper", "def _other"),
        ("_order(", "_place("),
        ("    priority: int = 0\n", "    priority: int = 0\n    variant: str = ''\n"),
        ("last: int = 0", "last: int = 0, more: int = 0"),
        ("INTERFACE_VERSION = 1", "INTERFACE_VERSION = 1\nNEW = 1"),
        ("INTERFACE_VERSION = 1", "INTERFACE_VERSION = 3"),
    ],
)
def test_private_names_and_additions_break_nothing(api: Repository, old: str, new: str) -> None:
    replace(api, old, new)
    assert broken(api) == []


def test_private_packages_do_not_count_and_public_ones_may_be_new(api: Repository) -> None:
    api.remove(f"{CORE}/selection/choose.py")
    api.write(f"{CORE}/device/__init__.py", HEADER + "def graphs() -> None: ...\n")
    assert broken(api) == []


def test_a_name_that_is_passed_on_counts_where_vendors_import_it(api: Repository) -> None:
    replace(api, "version: str, range_", "release: str, range_", "vendor/probes.py")
    assert set(broken(api)) == {
        f"a change of accel_core.vendor.in_range({name}) breaks vendor packages"
        for name in ("version", "release")
    }


def test_a_class_that_moves_to_a_submodule_is_compared_all_the_same(api: Repository) -> None:
    # griffe alone passes over a class that was here and is now passed on.
    text = (api.root / CORE / "vendor/__init__.py").read_text(encoding="utf-8")
    api.write(f"{CORE}/vendor/record.py", text.replace("first: int, *, last", "index: int, *, last"))
    passed_on = "from accel_core.vendor.record import INTERFACE_VERSION, Vendor, in_range\n"
    api.write(
        f"{CORE}/vendor/__init__.py",
        f'{HEADER}{passed_on}\n__all__ = ["INTERFACE_VERSION", "Vendor", "in_range"]\n',
    )
    api.remove(f"{CORE}/vendor/probes.py")
    api.write(f"{CORE}/vendor/probing.py", HEADER + PROBES)
    record = (api.root / CORE / "vendor/record.py").read_text(encoding="utf-8")
    api.write(f"{CORE}/vendor/record.py", record.replace("vendor.probes", "vendor.probing"))
    assert set(broken(api)) == {
        f"a change of accel_core.vendor.Vendor.order({name}) breaks vendor packages"
        for name in ("first", "index")
    }


def test_each_name_of_a_public_package_that_is_removed_is_told(api: Repository) -> None:
    api.remove(f"{CORE}/errors.py")
    assert broken(api) == ["a change of accel_core.errors.AccelError breaks vendor packages"]


def intend(api: Repository) -> None:
    """A change of order(), listed under interface number 2 and announced."""
    replace(api, "first: int, *,", "*,")
    replace(api, "INTERFACE_VERSION = 1", "INTERFACE_VERSION = 2")
    api.write("packages/accel-core/breaking-changes.toml", INTENDED)
    api.write("packages/accel-core/changelog.d/9.removal.md", "Vendor.order() takes no index.\n")


def test_a_change_that_is_listed_with_a_reason_and_announced_passes(api: Repository) -> None:
    intend(api)
    assert broken(api) == []
    api.write("packages/accel-core/breaking-changes.toml", "")
    assert broken(api) == ["a change of accel_core.vendor.Vendor.order(first) breaks vendor packages"]


def test_a_function_is_listed_once_for_all_of_its_parameters(api: Repository) -> None:
    intend(api)
    replace(api, "*, last: int = 0", "*, last: int")
    assert broken(api) == ["a change of accel_core.vendor.Vendor.order(last) breaks vendor packages"]
    api.write("packages/accel-core/breaking-changes.toml", INTENDED.replace("(first)", ""))
    assert broken(api) == []


def test_a_listed_change_belongs_to_the_present_interface_number(api: Repository) -> None:
    intend(api)
    replace(api, "INTERFACE_VERSION = 2", "INTERFACE_VERSION = 3")
    assert broken(api) == [
        "a change of accel_core.vendor.Vendor.order(first) breaks vendor packages",
        "packages/accel-core/breaking-changes.toml lists a change that does not break anything",
    ]


def test_a_listed_change_that_breaks_nothing_any_more_is_an_error(api: Repository) -> None:
    intend(api)
    replace(api, "(self, *, last", "(self, first: int, *, last")
    assert broken(api) == [
        "packages/accel-core/breaking-changes.toml lists a change that does not break anything"
    ]


def test_a_listed_change_is_announced_in_the_changelog(api: Repository) -> None:
    intend(api)
    api.remove("packages/accel-core/changelog.d/9.removal.md")
    assert broken(api) == ["breaking changes that the changelog does not mention"]


def test_a_reason_that_says_nothing_is_refused(api: Repository) -> None:
    intend(api)
    api.write("packages/accel-core/breaking-changes.toml", INTENDED.replace("it was the index", " "))
    with pytest.raises(CheckError, match="without a reason"):
        broken(api)


def test_after_a_release_its_tag_is_the_base_and_a_break_needs_a_new_number(
    api: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(api, "class Vendor:", "class Seller:")
    replace(api, '"Vendor", ', '"Seller", ')
    for tag in ("accel-core-v0.9.0", "accel-core-v0.10.0", "accel-cpu-v1.0.0"):
        api.commit(tag)
        api.git("tag", tag)
    api.commit()
    assert check_api.main([], api.root) == 0
    assert capsys.readouterr().out.endswith("since accel-core-v0.10.0\n")
    intend(api)
    replace(api, "INTERFACE_VERSION = 2", "INTERFACE_VERSION = 1")
    api.write(
        "packages/accel-core/breaking-changes.toml",
        INTENDED.replace("[2]", "[1]").replace("Vendor.o", "Seller.o"),
    )
    assert check_api.main([], api.root) == 1
    assert capsys.readouterr().err.startswith("breaking changes without a new interface number\n")


@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--require-base"], 1)])
def test_a_clone_without_the_base_says_that_nothing_was_compared(
    api: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int
) -> None:
    api.git("clone", "-q", "--depth=1", api.root.as_uri(), str(tmp_path / "shallow"))
    assert check_api.main(arguments, tmp_path / "shallow") == status
    assert capsys.readouterr().out.startswith("not run: this clone lacks ")


def test_outside_git_nothing_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.accel.api]\npackages = []\nbase = "x"\n', encoding="utf-8"
    )
    assert check_api.main([], tmp_path) == 0
    assert capsys.readouterr().out.startswith("not run: ")
