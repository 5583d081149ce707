# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What each package of this repository is and ships, by what rules, and what its template and examples have."""

import ast
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_core.devices import CPU_KEY, DEVICES
from accel_core.upstream.contract import TRIED_TORCH
from accel_sim import build
from ci import api, feature_matrix, release_check, workspace
from ci.workspace import CORE, Package

from .conftest import ROOT

PACKAGES = workspace.load(ROOT)
VENDORS = [package for package in PACKAGES.values() if package.vendors]
every_package = pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)


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


@pytest.mark.parametrize("example", [*EXAMPLES, None], ids=lambda path: path.name if path else "the template")
def test_examples_of_vendor_packages_import_public_packages_only(
    example: Path | None, template: Path
) -> None:
    """Import-linter reads real packages, this the template, the toys and the tutorial."""
    source = "".join(file.read_text(encoding="utf-8") for file in (example or template).rglob("*.py"))
    found = set(re.findall(r"^ *(?:from|import) accel_core\b(?:\.(\w+))?", source, re.MULTILINE))
    assert found
    assert found <= {*api.PUBLIC}
