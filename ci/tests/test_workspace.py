# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest

from ci import workspace
from ci.problem import Problem
from ci.tests.repository import HEADER, Repository

ROOT = Path(__file__).parents[2]


def test_this_repository_can_be_read() -> None:
    packages = workspace.load(ROOT)
    assert {"accel-core", "accel-cpu"} <= packages.keys()
    assert list(packages) == sorted(packages)
    cpu = packages["accel-cpu"]
    assert (cpu.module, cpu.folder) == ("accel_cpu", "packages/accel-cpu")
    assert "cpu" in cpu.vendors


def test_every_tool_knows_every_package() -> None:
    packages = workspace.load(ROOT).values()
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
    assert [pattern for pattern in patterns if not [*ROOT.glob(pattern)]] == []


def test_a_package_needs_what_its_requirements_need(repository: Repository) -> None:
    packages = workspace.load(repository.root)
    assert workspace.needs(packages, "accel-both") == {"accel-core", "accel-cpu"}
    assert workspace.needs(packages, "accel-core") == set()


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("pyproject.toml", "[project\n", "TOMLDecodeError"),
        ("pyproject.toml", "[tool.x]\n", "KeyError"),
        ("src/accel_cpu/__about__.py", HEADER, "IndexError"),
        ("src/accel_cpu/__about__.py", '__version__ = "one"\n', "InvalidVersion"),
    ],
)
def test_a_package_that_cannot_be_read_is_named(
    repository: Repository, path: str, text: str, found: str
) -> None:
    repository.write(f"packages/accel-cpu/{path}", text)
    with pytest.raises(Problem, match=found) as error:
        workspace.load(repository.root)
    assert "packages/accel-cpu/pyproject.toml" in error.value.what


def test_outside_a_checkout_it_says_where_to_run(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="run this from the root of a checkout"):
        workspace.load(tmp_path)
