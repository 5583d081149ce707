# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What each package of this repository is and ships, by what rules, and what its template and examples have."""

import ast
import importlib.metadata
import importlib.util
import json
import re
import runpy
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_core.devices import CPU_KEY, DEVICES
from accel_core.upstream.contract import TRIED_TORCH
from accel_core.vendor import ENTRY_POINT_GROUP, Vendor
from accel_sim import build
from ci import api, feature_matrix, release_check, workspace
from ci.workspace import CORE, Package

from .conftest import ROOT, run

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
    assert not [*release_check.unfit(ROOT, PACKAGES, package)]


def test_the_template_requires_the_releases_of_core_that_take_its_interface_number() -> None:
    folder = ROOT / "shared/template/package"
    (record,) = folder.glob("src/*/vendor.py.jinja")
    (number,) = re.findall(r"interface=(\d+),", record.read_text(encoding="utf-8"))
    first, end = (release_check.release_of(int(number) + later) for later in (0, 2))
    for file in ("pyproject.toml.jinja", "CONTRIBUTING.md.jinja"):
        assert f"accel-core>={first},<{end}" in (folder / file).read_text(encoding="utf-8")


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
def test_every_package_is_for_the_same_releases_of_python(package: Package) -> None:
    def pythons(project: Mapping[str, Any]) -> list[str]:
        return [project["requires-python"], *(c for c in project["classifiers"] if " :: Python :: 3." in c)]

    assert pythons(package.project) == pythons(PACKAGES[CORE].project)


#: Files that may require torch.
REQUIRING = [
    *ROOT.glob("packages/*/pyproject.toml"),
    *ROOT.glob("shared/toy_vendors/*/pyproject.toml"),
    ROOT / "shared/template/package/pyproject.toml.jinja",
]
FLOOR = next(each.version for each in TRIED_TORCH if each.operator == ">=")


@pytest.mark.parametrize("file", REQUIRING, ids=lambda file: file.parent.name)
def test_every_package_requires_the_lowest_tried_torch(file: Path) -> None:
    floor = build.OLDEST if file.parent.name in ("accel-rehearse", "accel-sim") else FLOOR
    assert set(re.findall(r'"torch>=(.*?)"', file.read_text(encoding="utf-8"))) <= {floor}


RUNS = json.loads((ROOT / feature_matrix.TRIED).read_text(encoding="utf-8"))["rows"]


def test_tried_torch_is_what_was_run() -> None:
    """`tox run -e torch-floor,torch-newest` writes the rows; one counts if nothing in it failed or was left out."""
    assert not [row for row in RUNS if "failed" in row["parts"].values()]
    program = runpy.run_path(str(ROOT / "tests/torch_versions/run.py"))
    complete = []
    for row in RUNS:
        release, needed = Version(row["torch"]), {*program["PARTS"]}
        if release < Version(build.OLDEST):
            needed -= {*program["SIMULATED"]}
        if row["parts"].keys() >= needed:
            complete.append(release)
    lowest, highest = min(complete), max(complete)
    assert (
        SpecifierSet(f">={lowest.major}.{lowest.minor},<{highest.major}.{highest.minor + 1}") == TRIED_TORCH
    )
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    assert re.findall(r"^    floor: torch==(.+)\.\*$", tox, re.MULTILINE) == [FLOOR]


def test_every_python_of_the_classifiers_was_run() -> None:
    stated = {text.rpartition(" ")[2] for text in PACKAGES[CORE].project["classifiers"] if ":: 3." in text}
    assert {row["python"].rpartition(".")[0] for row in RUNS} == stated


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
    "tests/test_probe.py",  # tests/vendors has those of all packages
)


@pytest.mark.parametrize("package", VENDORS, ids=lambda package: package.name)
def test_a_vendor_package_has_the_files_of_the_template(package: Package, template: Path) -> None:
    files = {path.relative_to(template).as_posix() for path in template.rglob("*") if path.is_file()}
    files = {name.replace("accel_newcard", package.module) for name in files}
    wanted = {name for name in files if not name.startswith(OF_A_REPOSITORY) and not name.endswith(OPTIONAL)}
    assert len(wanted) > 10
    assert not {name for name in wanted if not (ROOT / package.folder / name).is_file()}


# --- the packages of this repository as the programs of ci read them


def test_every_tool_knows_every_package() -> None:
    packages = PACKAGES.values()
    tool = workspace.read_toml(ROOT / "pyproject.toml")["tool"]
    modules = {package.module for package in packages}
    vendors = {package.module for package in packages if package.vendors}
    contracts = {contract["name"]: contract for contract in tool["importlinter"]["contracts"]}
    layers = " | ".join(contracts["Packages are layered"]["layers"]).split(" | ")
    assert {*tool["importlinter"]["root_packages"]} == {*layers} == modules
    assert {*contracts["No folder imports one that imports it"]["ancestors"]} == modules
    (deepspeed,) = [c for c in contracts.values() if c.get("forbidden_modules") == ["deepspeed"]]
    assert vendors <= {*deepspeed["source_modules"]} < modules
    strict = {
        m for part in tool["mypy"]["overrides"] if part.get("enable_error_code") for m in part["module"]
    }
    assert strict == {f"{module}.*" for module in vendors}


def test_each_pattern_of_make_test_more_names_files() -> None:
    patterns = re.findall(r'^    "(.+)",$', (ROOT / "conftest.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert "tests/*" in patterns
    assert [pattern for pattern in patterns if not [*ROOT.glob(pattern.partition("::")[0])]] == []


SOURCES = ROOT / "packages/accel-core/src/accel_core"
#: "cpu" is torch's name for host memory, too.
KEYS = {device.key for device in DEVICES} - {CPU_KEY}


def vendor_names(source: str) -> Iterator[int]:
    """Lines with a string that is a vendor's key."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in KEYS:
            yield node.lineno


def test_core_names_no_vendor_outside_its_table() -> None:
    """Import-linter sees imports, this sees the names."""
    sources = [*SOURCES.rglob("*.py")]
    named = [f"{path.name}:{line}" for path in sources for line in vendor_names(path.read_text("utf-8"))]
    assert len(sources) > 20
    assert named == []
    assert list(vendor_names('if key == "npu":\n    pass')) == [1]


EXAMPLES = [ROOT / path for path in ("shared/toy_vendors/accel-toy", "shared/toy_vendors/accel-classic",
                                     "examples/privateuse1/accel-acme")]  # fmt: skip


def imports(folder: Path) -> Iterator[tuple[str, str]]:
    """File and module of each import from accel_core."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "accel_core":
                names = [f"accel_core.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from ((file.name, name) for name in names if name.partition(".")[0] == "accel_core")


@pytest.mark.parametrize("example", [*EXAMPLES, None], ids=lambda path: path.name if path else "the template")
def test_examples_of_vendor_packages_import_public_packages_only(
    example: Path | None, template: Path
) -> None:
    """Import-linter reads real packages, this the template, the toys and the tutorial."""
    found = list(imports(example or template))
    assert found
    allowed = tuple(f"accel_core.{package}." for package in api.PUBLIC)
    assert [(file, name) for file, name in found if not f"{name}.".startswith(allowed)] == []


# --- the advice for a missing runtime, as each vendor's record has it, never replaces the torch that is here

_OURS = re.compile(r"accel_[a-z]+\.vendor:")
RECORDS: dict[str, Vendor] = {
    f"{record.label}": record
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    if _OURS.match(point.value)
    for record in [point.load()]
}
#: The CPU's runtime is torch; IPEX is over, and the other variant of the same key needs none.
WITHOUT_ADVICE = {"cpu", "xpu (ipex)"}


def test_every_vendor_has_advice() -> None:
    assert len(RECORDS) > 8
    assert {label for label, record in RECORDS.items() if not record.how_to_install()} == WITHOUT_ADVICE


@pytest.mark.parametrize("label", sorted(RECORDS))
def test_a_command_names_the_release_of_torch_or_leaves_torch_alone(label: str) -> None:
    advice = RECORDS[label].how_to_install()
    torch = importlib.metadata.version("torch")
    assert not re.search(r"\{\w*\}", advice)
    for command in re.findall(r"pip install[^;,()&]*", advice):
        kept = f'"torch=={torch.partition("+")[0]}' in command
        assert kept or "--no-deps" in command, command
