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
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ci.problem import Problem, report
from ci.workspace import git

PUBLIC = ("vendor", "device", "op_builder", "interface", "errors")
SOURCE = "packages/accel-core/src"


def check(root: Path) -> Iterator[Problem]:
    """One problem for each public package of which a change breaks something."""
    tag = last_release(root)
    if tag is None:
        print("nothing to compare with: this clone knows no release of accel-core")
        return
    numbers = (
        interface_number(git(root, "grep", "-h", "INTERFACE_VERSION = ", tag, "--", SOURCE)),
        current(root),
    )
    for package in PUBLIC:
        command = ["griffe", "check", f"accel_core.{package}", "--search", SOURCE, "--against", tag]
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=root, capture_output=True, text=True, check=False
        )
        if not done.returncode:
            continue
        if numbers[0] != numbers[1]:
            print(f"intended, with interface {numbers[1]}:\n{done.stdout}")
            continue
        yield Problem(
            what=f"a change of accel_core.{package} breaks vendor packages",
            found=(done.stdout + done.stderr).strip().replace("\n", "\n            "),
            expected=f"what a vendor package uses stays as in {tag}, or has a new interface number",
            do="take the change back, or increase INTERFACE_VERSION (CONTRIBUTING.md)",
        )


def last_release(root: Path) -> str | None:
    """The newest tag of accel-core below HEAD, whose own is the release under way; None where there is none."""
    try:
        return git(root, "describe", "--tags", "--abbrev=0", "--match", "accel-core-v*", "HEAD~1").strip()
    except Problem:
        return None


def current(root: Path) -> int | None:
    """The interface number of the core in this tree."""
    sources = sorted((root / SOURCE).rglob("*.py"))
    return interface_number("\n".join(file.read_text(encoding="utf-8") for file in sources))


def interface_number(text: str) -> int | None:
    """The number in a source of accel_core.vendor; None where it has none."""
    found = re.search(r"^INTERFACE_VERSION = (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


if __name__ == "__main__":
    sys.exit(report(check(Path.cwd()), "no change breaks vendor packages"))
