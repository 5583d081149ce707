# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
""".ci/run, with a Makefile of few lines in the place of ours."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ci.tests import repository


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "ci").mkdir()
    shutil.copy(repository.ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "ci/system-packages.txt").write_text("# none\n\n", encoding="utf-8")
    return tmp_path


def run(
    checkout: Path, recipe: str, more: str = "true", again: str = "false", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script from another folder, without stdin; `make test`, `test-more` and `test-again` do the recipes."""
    # These tests may themselves run under make, whose level and flags would change what the inner one prints.
    outer = {name: value for name, value in os.environ.items() if "MAKE" not in name and name != "MFLAGS"}
    makefile = f"test:\n\t@{recipe}\ntest-more:\n\t@{more}\ntest-again:\n\t@{again}\n"
    (checkout / "Makefile").write_text(makefile, encoding="utf-8")
    environment = {**outer, "CI": "true", **variables}
    return repository.run("bash", checkout / ".ci/run", cwd="/", env=environment, stdin=subprocess.DEVNULL)


def test_tests_that_pass_end_with_0_and_their_output_is_shown(checkout: Path) -> None:
    result = run(checkout, "echo '== 12 passed, 1 skipped in 3s =='")
    assert (result.returncode, result.stdout) == (0, "== 12 passed, 1 skipped in 3s ==\n")


@pytest.mark.parametrize(
    "recipe",
    [
        "echo '1 failed, 12 passed'; exit 1",
        "echo 'no tests ran'; exit 5",
        "echo 'no tests ran'",
        "echo '12 skipped'",
        "echo '0 passed'",
        "true",
    ],
)
def test_a_failure_or_no_test_at_all_ends_non_zero(checkout: Path, recipe: str) -> None:
    assert run(checkout, recipe).returncode != 0


def test_a_test_of_the_second_tier_that_fails_once_is_reported_as_unsteady(checkout: Path) -> None:
    result = run(checkout, "echo 1 passed", more="echo 1 failed; exit 1", again="echo 1 passed")
    assert result.returncode == 0
    assert "what passes now is unsteady\n1 passed\n" in result.stdout


def test_a_test_of_the_second_tier_that_fails_twice_ends_non_zero(checkout: Path) -> None:
    assert run(checkout, "echo 1 passed", more="exit 1", again="exit 1").returncode != 0


def test_a_failure_of_the_first_tier_is_not_tried_again(checkout: Path) -> None:
    result = run(checkout, "echo 1 passed; exit 1", more="echo more", again="echo again")
    assert result.returncode != 0
    assert "more" not in result.stdout


def test_the_callers_choice_of_accelerator_does_not_reach_the_tests(checkout: Path) -> None:
    recipe = 'echo "1 passed [$$DS_ACCELERATOR$$ACCEL_SKIP]"'
    result = run(checkout, recipe, DS_ACCELERATOR="npu", ACCEL_SKIP="cuda")
    assert result.stdout == "1 passed []\n"


@pytest.mark.parametrize("user", ["0", "1000"])
def test_system_packages_are_installed_by_root_only(checkout: Path, user: str) -> None:
    (checkout / "ci/system-packages.txt").write_text(
        "# MPI\nopenmpi-bin\n\n  # remote\npdsh\n", encoding="utf-8"
    )
    tools = checkout / "tools"
    tools.mkdir()
    for name, line in (("id", f"echo {user}"), ("apt-get", 'echo "apt-get $*"')):
        (tools / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    result = run(checkout, "echo 1 passed", PATH=f"{tools}:{os.environ['PATH']}")
    assert result.returncode == 0
    assert result.stdout.endswith("1 passed\n")
    if user == "0":
        installed = "apt-get install -y -qq --no-install-recommends openmpi-bin pdsh"
        assert result.stdout.splitlines()[:2] == ["apt-get update -qq", installed]
    else:
        assert "not installed (needs root and apt-get): openmpi-bin pdsh" in result.stderr
