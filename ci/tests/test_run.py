# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`.ci/run`, with a Makefile of few lines in the place of ours; and the hooks of pre-commit, each of which can fail."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .conftest import GIT_ENVIRONMENT, HEADER, ROOT, Repository, run


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


# --- the rules about text, which are hooks of pre-commit: each one can fail, and lets pass what keeps it

#: Put together here, so that this file itself keeps the rules.
HOME, HOST = "/" + "home/me/wheels", "pypi" + ".org"

#: Files that each break the rule of one hook, by its id.
BROKEN = {
    "spdx": {
        "ci/empty.py": "",
        "ci/late.py": "x = 1\n" + HEADER,
        "ci/other.py": HEADER.replace("Apache-2.0", "MIT"),
        "shared/a.cpp": "int x;\n",
    },
    "spdx-script": {".ci/go": "#!/usr/bin/env bash\necho\n"},
    "utils": {"ci/utils.py": HEADER, "shared/utils.h": HEADER.replace("#", "//")},
    "machine-path": {
        "docs/a.md": f"\nput it in {HOME}\n",
        "docs/b.md": f"`{HOME}`\n",
        "docs/c.md": f"without a reason {HOME} <!-- house: -->\n",
    },
    "bare-return-in-test": {
        "ci/tests/test_a.py": HEADER + "def test_a(x):\n    if x:\n        return\n    assert x\n"
    },
    "registry-host": {"pyproject.toml": f'index = "https://{HOST}/simple"\n'},
}
KEPT = {
    ".ci/go": "#!/usr/bin/env bash\n" + HEADER,
    "shared/long.h": HEADER.replace("#", "//"),
    "ci/my_utils.py": HEADER,
    "docs/utils/a.md": "no header is asked of a page\n",
    "docs/b.md": f"https://example.com{HOME}\nsee packages{HOME}\nthe my{HOST} index\n",
    "docs/c.md": f"{HOME} <!-- house: an example -->\n{HOST} <!-- house: an example -->\n",
}


def failed(repository: Repository, files: Mapping[str, str]) -> dict[str, str]:
    """What each hook that fails printed, by its id, in a repository with these files."""
    for path, text in files.items():
        repository.write(path, text)
        (repository.root / path).chmod(0o755 if path.startswith(".ci") else 0o644)
    shutil.copy(ROOT / ".pre-commit-config.yaml", repository.root)
    repository.git("add", "--all")
    home = {"PRE_COMMIT_HOME": str(repository.root.parent / "pre-commit")}
    result = run(
        sys.executable, "-m", "pre_commit", "run", "--all-files", "--hook-stage=manual", "--color=never",
        cwd=repository.root, env={**os.environ, **GIT_ENVIRONMENT, **home},
    )  # fmt: skip
    found = dict(
        re.findall(r"^- hook id: (\S+)\n(.*?)(?=^\S[^\n]*\.\.\.|\Z)", result.stdout, re.MULTILINE | re.DOTALL)
    )
    assert bool(found) == bool(result.returncode), result.stdout + result.stderr
    return found


def test_a_file_that_breaks_a_rule_is_named_by_the_hook_of_that_rule(repository: Repository) -> None:
    files = {path: text for broken in BROKEN.values() for path, text in broken.items()}
    printed = failed(repository, files)
    named = {hook: {path for path in files if path in output} for hook, output in printed.items()}
    assert named == {hook: set(broken) for hook, broken in BROKEN.items()}


def test_files_that_keep_the_rules_pass(repository: Repository) -> None:
    assert failed(repository, KEPT) == {}
