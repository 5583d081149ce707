# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What each package of this repository ships: licence, metadata, and a changelog that its tool can build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accel_core.vendor import core_requirement
from ci import release_check, workspace
from ci.workspace import Package

ROOT = Path(__file__).parents[2]
PACKAGES = workspace.load(ROOT)
every_package = pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
#: Runs towncrier in an interpreter in which no package of this repository can be imported, as on a fresh machine.
TOWNCRIER = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("accel_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
from towncrier._shell import cli
cli()
"""


@every_package
def test_a_package_has_the_licence_of_the_repository(package: Package) -> None:
    assert (ROOT / package.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@every_package
def test_a_package_requires_the_releases_of_core_that_take_its_interface_number(package: Package) -> None:
    assert not [*release_check.check_interface(ROOT, package)]
    assert not [*release_check.check_siblings(ROOT, PACKAGES, package)]


def test_the_template_requires_the_releases_of_core_that_take_its_interface_number() -> None:
    folder = ROOT / "shared/template/package"
    (record,) = folder.glob("src/*/vendor.py.jinja")
    (number,) = re.findall(r"interface=(\d+),", record.read_text(encoding="utf-8"))
    assert f'"{core_requirement(int(number))}"' in (folder / "pyproject.toml.jinja").read_text(
        encoding="utf-8"
    )
    assert core_requirement(int(number)) in (folder / "CONTRIBUTING.md.jinja").read_text(encoding="utf-8")


@every_package
def test_towncrier_builds_the_changelog_where_no_package_is_installed(
    package: Package, tmp_path: Path
) -> None:
    folder = tmp_path / package.name
    shutil.copytree(
        ROOT / package.folder, folder, ignore=shutil.ignore_patterns("tests", "csrc", "__pycache__")
    )
    (folder / "changelog.d/999.bugfix.md").write_text("A change.\n", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-c", TOWNCRIER, "build", "--yes"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    changelog = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {package.version} (" in changelog
    assert "- A change. (#999)" in changelog
    assert [path.name for path in (folder / "changelog.d").glob("*.md")] == []


@every_package
def test_the_classifiers_name_every_python_from_the_oldest_that_is_taken(package: Package) -> None:
    text = (ROOT / package.folder / "pyproject.toml").read_text(encoding="utf-8")
    stated = sorted(int(minor) for minor in re.findall(r"Python :: 3\.(\d+)\"", text))
    oldest, newest = (int(version.partition(".")[2]) for version in (package.python, package.newest))
    assert stated == list(range(oldest, newest + 1))
