# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which packages does a range of commits affect?

    python -m ci.affected --base origin/main [--head HEAD]

Prints JSON: the packages in order of name, and for each one a file that is the reason. A change in a package
affects it and all that stand on it. Documentation affects none. Anything else (shared/, ci/, the root's
settings, accel-core, accel-testkit, a file this program does not know) affects all: a false alarm costs minutes.
Why: path filters of a forge know folders; which package needs which stands in their pyproject.toml.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ci import git, workspace
from ci.problem import CheckError
from ci.workspace import CORE, TESTKIT, Package

DOCUMENTATION = re.compile(
    r"docs/.*"
    r"|[^/]+\.md"
    r"|LICENSE"
    r"|packages/[^/]+/(docs/.*|changelog\.d/.*|README\.md|CHANGELOG\.md)"
)


def affected(packages: Mapping[str, Package], files: Iterable[str]) -> dict[str, str]:
    """Affected package -> the first file that is the reason, in order of package name."""
    owners = {package.folder: name for name, package in packages.items()}
    dependents = {name: _dependents(packages, name) for name in packages}
    reasons: dict[str, str] = {}
    for file in files:
        if DOCUMENTATION.fullmatch(file):
            continue
        owner = owners.get("/".join(file.split("/")[:2]))
        for name in packages.keys() if owner in (None, CORE, TESTKIT) else dependents[owner]:
            reasons.setdefault(name, file)
    return dict(sorted(reasons.items()))


def _dependents(packages: Mapping[str, Package], name: str) -> set[str]:
    return {name} | {
        other for other in packages if name in workspace.needs(packages, other, development=True)
    }


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.affected", description="Packages that a range of commits affects."
    )
    parser.add_argument("--base", required=True, help="revision that the change starts from")
    parser.add_argument("--head", default="HEAD", help="revision that it ends with (default: HEAD)")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        reasons = affected(workspace.load(root), git.changed(root, options.base, options.head))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps({"packages": list(reasons), "why": reasons}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
