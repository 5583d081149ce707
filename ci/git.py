# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The few questions that the programs of ci/ ask git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ci.problem import CheckError, Problem


def changed(root: Path, base: str, head: str) -> list[str]:
    """Files that `head` changes since it left `base`, relative to the root; a moved one at both ends."""
    span = f"{commit(root, base)}...{commit(root, head)}"
    return _lines(_git(root, "diff", "--name-only", "--no-renames", "-z", span))


def files(root: Path) -> list[str]:
    """Files that are tracked or would be with `git add --all`, relative to the root."""
    listed = _lines(_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
    return sorted(name for name in set(listed) if (root / name).is_file())


def commit(root: Path, revision: str) -> str:
    """The commit that a revision names. Raises CheckError when there is none."""
    found = try_commit(root, revision)
    if found is None:
        raise CheckError(
            Problem(
                what=f"git knows no revision {revision!r}",
                found=f"no such commit in {root}",
                expected="a branch, a tag or a commit of this checkout",
                do="correct the name, or fetch it (a shallow clone lacks most: git fetch --unshallow)",
            )
        )
    return found


def try_commit(root: Path, revision: str) -> str | None:
    """The commit that a revision names, or None."""
    # --end-of-options: a revision that begins with a dash is a wrong revision, not an option.
    command = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    result = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def uncommitted(root: Path) -> list[str]:
    """Lines of `git status`: empty when the tree is what HEAD says."""
    return _lines(_git(root, "status", "--porcelain", "-z"))


def _git(root: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        raise CheckError(
            Problem(
                what=f"git {arguments[0]} failed in {root}",
                found=error.stderr.strip(),
                expected="a git checkout with that history",
                do="run this from a checkout; fetch the history that is missing",
            )
        ) from error
    return result.stdout


def _lines(output: str) -> list[str]:
    return [line for line in output.split("\0") if line]
