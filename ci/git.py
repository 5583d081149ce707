# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The few questions that the programs of ci/ ask git.

Why: a library for git would be a dependency of every pipeline, for eight commands.
"""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from packaging.version import InvalidVersion, Version

from ci.problem import CheckError, Problem


def changed(root: Path, base: str, head: str) -> list[str]:
    """Files that `head` changes since it left `base`, relative to the root; a moved one at both ends."""
    span = f"{commit(root, base)}...{commit(root, head)}"
    return _lines(_git(root, "diff", "--name-only", "--no-renames", "-z", span))


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


def releases(root: Path, package: str) -> dict[Version, str]:
    """The released versions of a package that HEAD comes after, in order -> tag, as accel-core-v0.1.0.

    A tag on HEAD itself is the release under way. Empty where git knows none, and outside git.
    """
    head = try_commit(root, "HEAD")
    if head is None:
        return {}
    listed = _git(root, "tag", "--list", f"{package}-v*", "--merged", "HEAD").split()
    versions = {
        _version(tag.removeprefix(f"{package}-v")): tag for tag in listed if try_commit(root, tag) != head
    }
    return {version: versions[version] for version in sorted(v for v in versions if v is not None)}


def export(root: Path, revision: str, path: str, folder: Path) -> Path:
    """Writes the files below `path` as the revision has them into `folder`; returns where `path` is there."""
    archive = folder / "export.zip"
    _git(root, "archive", "--format=zip", f"--output={archive}", commit(root, revision), "--", path)
    with zipfile.ZipFile(archive) as files:
        files.extractall(folder)
    archive.unlink()
    return folder / path


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


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _lines(output: str) -> list[str]:
    return [line for line in output.split("\0") if line]
