# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The rehearsal of a release: its index hides what is yanked, and a step that fails ends its package alone."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from ci import rehearse, workspace
from ci.problem import Problem
from ci.tests.repository import ROOT, run

PORT = workspace.load(ROOT)["accel-port"]


def test_a_yanked_release_is_marked_and_the_others_are_not(tmp_path: Path) -> None:
    files = [tmp_path / f"accel_toy-{name}" for name in ("0.1.0-py3-none-any.whl", "0.1.1.tar.gz")]
    for file in files:
        file.write_text(file.name, encoding="utf-8")
    (tmp_path / "index").mkdir()
    index = rehearse.Index(tmp_path / "index")
    index.publish("accel-toy", files)
    index.yank("accel-toy", Version("0.1.1"))
    with index.served() as url, urllib.request.urlopen(f"{url}accel-toy/") as page:
        lines = [line for line in page.read().decode().splitlines() if "sha256=" in line]
    assert ["data-yanked" in line for line in lines] == [False, True]


def test_a_step_that_fails_ends_the_steps_of_its_package_and_says_why() -> None:
    done: list[str] = []

    def build(*_: object) -> str:
        raise Problem(what="two builds differ", found="a", expected="b", do="c")

    def tag(*_: object) -> str:
        done.append("tag")
        return "tagged"

    act: Any = SimpleNamespace(tag=tag, build=build, publish=lambda *_: done.append("publish"))
    results = rehearse.rehearse(act, PORT, trial=True)
    assert done == ["tag"]
    assert results["tag"] == "tagged"
    assert results["build twice"].startswith("failed: two builds differ")
    page = rehearse.page({"accel-port": results})
    assert "| accel-port | tagged | failed: two builds differ | — |" in page


def test_an_environment_that_cannot_be_made_is_a_failure_of_the_installation(tmp_path: Path) -> None:
    def environment(name: str, python: Path) -> None:
        python.parent.mkdir(parents=True)
        raise Problem(what="no network", found="a", expected="b", do="c")

    def passed(*_: object) -> str:
        return "passed"

    steps = dict.fromkeys(("tag", "build", "publish"), passed)
    act: Any = SimpleNamespace(work=tmp_path, environment=environment, **steps)
    results = rehearse.rehearse(act, PORT, trial=True)
    assert results["check, publish"] == "passed"
    assert results["install"].startswith("failed: no network")
    assert list((tmp_path / "environments").iterdir()) == []


@pytest.mark.slow
def test_a_release_of_a_package_is_rehearsed_from_the_changelog_to_the_roll_back(tmp_path: Path) -> None:
    for module in ("check_wheel_contents", "cyclonedx", "uv"):
        pytest.importorskip(module, reason="not run: requirements-dev.txt is newer than this environment")
    done = run(sys.executable, "-m", "ci.rehearse", "accel-port", "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [*rehearse.RELEASE, *rehearse.TRIAL[:-1]]
    assert [step for step in steps if f"accel-port: {step}: " not in done.stdout] == []
    changelog = tmp_path / "kept/clone/packages/accel-port/CHANGELOG.md"
    first = f"## {PORT.version} ("
    assert first in changelog.read_text(encoding="utf-8")
