# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether the sources stay as they were while mutants are judged.

A mutant is derived from the text read at the beginning, but processes that a check starts read the other files anew:
after an edit the outcomes are of no one version of the sources.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from accel_core.errors import four_parts

#: They run in the children, too: what vendors derive from, and the checks.
_ALWAYS = ("accel_core", "accel_testkit")
_SHOWN = 5


def digests(packages: Iterable[str]) -> dict[str, str]:
    """Return the digest of each source file of the packages, and of those that mutants always run with."""
    files: set[Path] = set()
    for package in {*(name.partition(".")[0] for name in packages), *_ALWAYS}:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            files |= {origin} if spec.submodule_search_locations is None else {*origin.parent.rglob("*.py")}
    return {str(file): sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the files that were edited, added or removed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def refusal(files: list[str]) -> str:
    """Return the text about a run during which files changed."""
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return four_parts(
        "the outcomes of this run are of no one version of the sources",
        found=f"changed while mutants were judged: {', '.join(files[:_SHOWN])}{more}",
        expected="the same sources from the first mutant to the last",
        do="run it again in a checkout that nobody edits meanwhile (git worktree add)",
    )
