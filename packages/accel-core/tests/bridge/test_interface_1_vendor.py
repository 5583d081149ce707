# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A wheel built for interface 1 beside this core: named with both sides and what to do; nothing else suffers."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accel_core.vendor import INTERFACE_VERSION

PROJECT = Path(__file__).parents[4] / "shared/toy_vendors/accel-toy-interface1"
PACKAGE = "accel-toy-interface1"
#: What each record's package is said to be written for.
WRITTEN_FOR = {
    "toy1": "an interface that has what this one lacks (cannot import name 'exports' from 'accel_core.lazy'",
    "toy1fields": "an interface whose Vendor record has other fields (Vendor.__init__() got an unexpected "
    "keyword argument 'road')",
    "toy1number": "interface 1",
}
EXPLAINED = """
import json, accel_core
said = accel_core.explain()
print(json.dumps({"chosen": said.chosen, "states": {f.label: f.state.value for f in said.candidates}}))
"""
REFUSED = """
import json, accel_core
from accel_core.errors import AccelError
try:
    accel_core.get_accelerator()
except AccelError as error:
    print(json.dumps([error.code, error.what, error.found, error.expected, error.do]))
"""


@pytest.fixture(scope="module")
def interface_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which its wheel is installed."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip"]
    offline = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    build = [*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", str(wheels), str(PROJECT)]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", *offline, "--target", str(site), str(wheel)], check=True, timeout=300)
    return site


def doctor(children: Any, *path: Path) -> dict[str, Any]:
    done = children.attempt("from accel_core.cli.main import main; main(['doctor', '--json'])", path)
    report: dict[str, Any] = json.loads(done.out)
    return report


def test_doctor_names_it_with_both_sides_and_what_to_do(children: Any, interface_1: Path) -> None:
    problems = {problem["subject"]: problem for problem in doctor(children, interface_1)["problems"]}
    core = importlib.metadata.version("accel-core")
    for key, written_for in WRITTEN_FOR.items():
        said = " ".join(str(value) for value in problems[key].values())
        assert "ACC-102" in said
        assert f"{PACKAGE} 0.1.0 is written for {written_for}" in said
        assert f"; accel-core {core} has interface {INTERFACE_VERSION}" in said
        assert re.search(rf"pip install --upgrade \S*accel-core {PACKAGE}", said)


def test_other_vendors_are_chosen_undisturbed(children: Any, interface_1: Path, toy: Path) -> None:
    said = children.run(EXPLAINED, [interface_1, toy]).report
    assert said["chosen"] == "toy"
    assert {said["states"][key] for key in WRITTEN_FOR} == {"broken"}
    alone = children.run(EXPLAINED, [interface_1]).report
    assert alone["chosen"] == children.run(EXPLAINED).report["chosen"]


@pytest.mark.parametrize("key", WRITTEN_FOR)
def test_asked_for_by_name_it_is_an_error_in_four_parts(children: Any, interface_1: Path, key: str) -> None:
    code, what, found, expected, do = children.run(REFUSED, [interface_1], DS_ACCELERATOR=key).report
    assert code == "ACC-203"
    assert what.startswith(f"DS_ACCELERATOR={key} cannot be served")
    assert f"{PACKAGE} 0.1.0 is written for {WRITTEN_FOR[key]}" in found
    assert f"has interface {INTERFACE_VERSION}" in found
    assert expected
    assert do
