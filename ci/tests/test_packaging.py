# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What each package of this repository ships: licence, metadata, and a changelog that its tool can build."""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from packaging.requirements import Requirement

from accel_core.vendor import core_requirement
from ci import release_check, workspace
from ci.tests.repository import ROOT, run
from ci.workspace import CORE, Package

PACKAGES = workspace.load(ROOT)
VENDORS = [package for package in PACKAGES.values() if package.vendors]
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
def test_towncrier_builds_the_changelog_without_any_package(package: Package, tmp_path: Path) -> None:
    folder = tmp_path / package.name
    left_out = shutil.ignore_patterns("tests", "csrc", "__pycache__")
    shutil.copytree(ROOT / package.folder, folder, ignore=left_out)
    (folder / "changelog.d/999.bugfix.md").write_text("A change.\n", encoding="utf-8")
    result = run(sys.executable, "-c", TOWNCRIER, "build", "--yes", cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    changelog = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {package.version} (" in changelog
    assert "- A change. (#999)" in changelog
    assert [path.name for path in (folder / "changelog.d").glob("*.md")] == []


@every_package
def test_the_folder_of_fragments_stays_when_a_release_takes_the_last_one(package: Package) -> None:
    assert (ROOT / package.folder / "changelog.d/.gitkeep").exists()


@every_package
def test_every_package_is_for_the_same_releases_of_python(package: Package) -> None:
    def pythons(project: Mapping[str, Any]) -> list[str]:
        return [project["requires-python"], *(c for c in project["classifiers"] if " :: Python :: 3." in c)]

    assert pythons(package.project) == pythons(PACKAGES[CORE].project)


@every_package
def test_an_sdist_carries_no_tests(package: Package) -> None:
    """They need the repository around them."""
    tool = workspace.read_toml(ROOT / package.folder / "pyproject.toml")["tool"]
    included = tool["hatch"]["build"]["targets"]["sdist"]["include"]
    assert "/src" in included
    assert not [path for path in included if "test" in path]


@every_package
def test_the_recipe_for_conda_says_what_the_package_says(package: Package) -> None:
    recipe = ROOT / "recipe"

    def file_data(path: str, *, from_recipe_dir: bool) -> dict[str, Any]:
        return workspace.read_toml(recipe / path)

    def file_regex(*, load_file: str, regex_pattern: str, from_recipe_dir: bool) -> re.Match[str] | None:
        return re.search(regex_pattern, (recipe / load_file).read_text(encoding="utf-8"))

    # What conda-build gives a recipe; no release of it or of conda-smithy's linter is on Python's index.
    text = jinja2.Template((recipe / "meta.yaml").read_text(encoding="utf-8")).render(
        environ={"ACCEL_PACKAGE": package.name}, PYTHON="python", load_file_data=file_data,
        load_file_regex=file_regex, compiler="{}_compiler".format, stdlib="{}_stdlib".format,
    )  # fmt: skip
    rendered = yaml.safe_load(text)
    assert rendered["package"] == {"name": package.name, "version": str(package.version)}
    python, *run = rendered["requirements"]["run"]
    assert python == f"python {package.project['requires-python']}"
    # conda's name of torch is pytorch.
    assert {Requirement(each.replace("pytorch", "torch")) for each in run} == {*package.requires}
    assert rendered["about"]["summary"] == package.project["description"]
    assert (ROOT / rendered["about"]["license_file"]).is_file()
    has_library = (ROOT / package.folder / "csrc").is_dir() and package.name in ("accel-cpu", "accel-ops")
    assert ("noarch" not in rendered["build"]) == has_library
    commands = [line.partition(" =")[0] for line in rendered["build"].get("entry_points", [])]
    assert commands == [*package.project.get("scripts", {})]


#: What a package in a repository of its own has, and this repository has once for all; and what one may leave out.
OF_A_REPOSITORY = (".github/", ".gitignore", "CONTRIBUTING.md", "changelog.d/+", "tox.ini")
OPTIONAL = (
    "tests/simulated.json",
    "op_builder/fused.py",
    "device/test_inference.py",
    "tests/test_probe.py",  # tests/vendors has those of all packages
    "tests/test_vendor.py",
)
#: The CPU is on every machine, and its Fused Adam is that of accel-ops.
WITHOUT = {"accel-cpu": {"tests/test_simulated.py", "tests/device/test_fused.py"}}


@pytest.mark.parametrize("package", VENDORS, ids=lambda package: package.name)
def test_a_vendor_package_has_the_files_of_the_template(package: Package, template: Path) -> None:
    files = {path.relative_to(template).as_posix() for path in template.rglob("*") if path.is_file()}
    files = {name.replace("accel_newcard", package.module) for name in files}
    wanted = {name for name in files if not name.startswith(OF_A_REPOSITORY) and not name.endswith(OPTIONAL)}
    assert len(wanted) > 15
    missing = {name for name in wanted if not (ROOT / package.folder / name).is_file()}
    assert missing == WITHOUT.get(package.name, set())
