# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Do all files keep the house rules?

    python -m ci.check_house

Prints file:line for every broken rule and exits with 1. A line that must break one says why on itself:
`# house: <reason>`. Those lines are listed too, so that a reader sees what was let through.
Why: these are the rules that no linter, import contract or hook of pre-commit has; each module of ci/house says more.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci import git, workspace
from ci.house import python, text
from ci.house.source import Source, Violation, tell
from ci.problem import CheckError

#: In any comment syntax of the files there are.
OPT_OUT = re.compile(r"(?:#|//|/\*|<!--|;)\s*house:\s*(?P<reason>\S.*?)\s*(?:\*/|-->)?$")


def check(root: Path) -> Iterator[tuple[Violation, str]]:
    """Every broken rule, with the reason why it is let through (empty where there is none)."""
    packages = workspace.load(root)
    files = git.files(root)
    sources = {source.path: source for source in _sources(root, files)}
    keys = {key for package in packages.values() for key in package.vendors}
    if python.CASCADE in sources:
        keys |= python.vendor_keys(sources[python.CASCADE])
    for source in sources.values():
        violations = [*text.check(source)]
        if source.is_python:
            violations += python.check(source, keys)
        for violation in violations:
            yield violation, _reason(source, violation.line)


def _sources(root: Path, files: Sequence[str]) -> Iterator[Source]:
    for path in files:
        try:
            yield Source(path, (root / path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue  # Not a text file: a picture, a recorded trace.


def _reason(source: Source, line: int) -> str:
    match = OPT_OUT.search(source.lines[line - 1]) if line <= len(source.lines) else None
    return match["reason"] if match else ""


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.check_house", description="Do all files keep the house rules?"
    )
    parser.parse_args(arguments)
    try:
        return tell(check(root or Path.cwd()))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
