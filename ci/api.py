# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a change of accel-core break vendor packages that were written for the last release?

    python -m ci.api

Runs `griffe check` on the public packages of core, against the last tag accel-core-v*. What breaks is an error unless
INTERFACE_VERSION is another than that of the release. Before the first release nothing is promised or compared.
Why: griffe finds what breaks; it does not know that a new interface number allows it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ci.program import Problem, git, python, report

PUBLIC = ("vendor", "device", "op_builder", "interface", "errors")
SOURCE = "packages/accel-core/src"


def check(root: Path) -> Iterator[Problem]:
    """Yield a problem for each public package of which a change breaks something."""
    try:
        # HEAD's own tag is the release under way.
        tag = git(root, "describe", "--tags", "--abbrev=0", "--match", "accel-core-v*", "HEAD~1")
    except Problem:
        print("nothing to compare with: this clone knows no release of accel-core")
        return
    if number(root, tag) != number(root):
        print(f"not compared with {tag}: the interface has another number")
        return
    for package in PUBLIC:
        command = f"-m griffe check accel_core.{package} --search {SOURCE} --against {tag}"
        try:
            python(*command.split(), cwd=root)
        except Problem as found:
            what = f"a change of accel_core.{package} breaks vendor packages written for {tag}"
            yield Problem(f"{what}; take it back, or increase INTERFACE_VERSION (CONTRIBUTING.md): {found}")


def number(root: Path, *commit: str) -> int:
    """Return the interface number of the core in this tree, or in a commit."""
    printed = git(root, "grep", "-hE", "^INTERFACE_VERSION = [0-9]+$", *commit, "--", SOURCE)
    return int(re.findall(r"\d+", printed)[0])


if __name__ == "__main__":
    sys.exit(report(check(Path.cwd()), "no change breaks vendor packages"))
