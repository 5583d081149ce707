# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The rules about text, which are hooks of pre-commit: each one can fail, and lets pass what keeps it."""

import os
import re
import shutil
import sys
from collections.abc import Mapping

from ci.tests.repository import GIT_ENVIRONMENT, HEADER, ROOT, Repository, run

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
