# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`.ci/run`, with a Makefile of few lines in the place of ours."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT, run


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "ci/system-packages.txt").write_text("# none\n\n", encoding="utf-8")
    return tmp_path


def ci_run(
    checkout: Path, recipe: str, more: str = "true", again: str = "false", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script from another folder, without stdin; `make test`, `test-more` and `test-again` do the recipes."""
    # These tests may themselves run under make, whose level and flags would change what the inner one prints.
    outer = {name: value for name, value in os.environ.items() if "MAKE" not in name and name != "MFLAGS"}
    makefile = f"test:\n\t@{recipe}\ntest-more:\n\t@{more}\ntest-again:\n\t@{again}\n"
    (checkout / "Makefile").write_text(makefile, encoding="utf-8")
    environment = {**outer, "CI": "true", **variables}
    return run("bash", checkout / ".ci/run", cwd="/", env=environment, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("recipes", "passes", "printed"),
    [
        (["echo '1 failed, 12 passed'; exit 1"], False, "1 failed"),
        (["echo 'no tests ran'; exit 5"], False, "no tests"),
        (["echo 'no tests ran'"], False, "no tests"),
        (["echo '12 skipped'"], False, "12 skipped"),
        (["echo '0 passed'"], False, "0 passed"),
        (["true"], False, ""),
        # A failure of the first tier is not tried again; of the second it is, and what passes then is unsteady.
        (["echo 1 passed; exit 1", "echo second", "echo again"], False, "1 passed\n"),
        (
            ["echo 1 passed", "echo 1 failed; exit 1", "echo 1 passed"],
            True,
            "what passes now is unsteady\n1 passed\n",
        ),
        (["echo 1 passed", "exit 1", "exit 1"], False, ""),
    ],
)
def test_status_is_that_of_the_tests(checkout: Path, recipes: list[str], passes: bool, printed: str) -> None:
    result = ci_run(checkout, *recipes)
    assert (result.returncode == 0) is passes
    assert printed in result.stdout
    assert "second" not in result.stdout


def test_the_callers_choice_of_accelerator_does_not_reach_the_tests(checkout: Path) -> None:
    recipe = 'echo "1 passed [$$DS_ACCELERATOR$$ACCEL_SKIP]"'
    result = ci_run(checkout, recipe, DS_ACCELERATOR="npu", ACCEL_SKIP="cuda")
    assert result.stdout == "1 passed []\n"
