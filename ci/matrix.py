# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The rows of CI: one for each package's tox environment, and one for each of the whole workspace.

    python -m ci.matrix                                            everything
    python -m ci.affected --base REV | python -m ci.matrix --affected -

Prints JSON for GitHub's `fromJSON`: {"include": [{"package": …, "env": …, "python": …}, …]}. Packages come
from packages/*, environments from tox. An environment that bears a package's name runs when the package is
affected, the others when any is; some packages run on the oldest and on the newest Python.
Why: tox knows environments, a forge knows jobs; neither knows which packages a change affects.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from ci import workspace
from ci.problem import CheckError, Problem
from ci.workspace import CORE, Package

#: Run on the newest Python too: what all vendors stand on, and the vendor whose device every machine has.
BOTH_PYTHONS = frozenset({CORE, "accel-ops", "accel-cpu"})
#: What they install is not for the oldest Python.
NEWEST_PYTHON = frozenset({"hf"})
#: They read text that no package owns, so they run even when no package is affected.
ALWAYS = frozenset({"lint", "docs"})


def rows(
    packages: Mapping[str, Package], environments: Iterable[str], affected: Collection[str]
) -> list[dict[str, str]]:
    """The rows to run. Raises CheckError for a package without an environment of its own."""
    environments = list(environments)
    owners = {name.removeprefix("accel-"): package for name, package in packages.items()}
    if missing := owners.keys() - set(environments):
        raise CheckError(
            Problem(
                what="a package has no tox environment",
                found=f"no environment {', '.join(sorted(missing))}; there are {', '.join(environments)}",
                expected="one environment for each package, named as the package without accel-",
                do="add it to tox.ini",
            )
        )
    oldest = str(max(Version(package.python) for package in packages.values()))
    newest = str(min(Version(package.newest) for package in packages.values()))
    found = []
    for name in environments:
        owner = owners.get(name)
        if owner and owner.name in affected:
            pythons = [owner.python, owner.newest] if owner.name in BOTH_PYTHONS else [owner.python]
            found += [{"package": owner.name, "env": name, "python": p} for p in dict.fromkeys(pythons)]
        elif not owner and (affected or name in ALWAYS):
            python = newest if name in NEWEST_PYTHON else oldest
            found.append({"package": "workspace", "env": name, "python": python})
    return found


def tox_environments(root: Path) -> list[str]:
    """The environments of tox.ini's env_list, as tox itself reads it; others are run by hand or nightly."""
    command = [sys.executable, "-m", "tox", "list", "-d", "--no-desc", "-q"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CheckError(
            Problem(
                what="tox cannot list its environments",
                found=(result.stderr or result.stdout).strip(),
                expected="tox installed beside this Python, and a tox.ini in the root",
                do="pip install tox, and run this from the root of a checkout",
            )
        )
    return result.stdout.split()


def _affected(text: str | None, packages: Mapping[str, Package]) -> Collection[str]:
    if text is None:
        return packages.keys()
    text = sys.stdin.read() if text == "-" else text
    try:
        names = json.loads(text)["packages"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckError(
            Problem(
                what="--affected is not what ci.affected prints",
                found=repr(text[:200]),
                expected='JSON with a list "packages"',
                do="see why python -m ci.affected printed nothing, or leave --affected out to get every row",
            )
        ) from error
    return [workspace.pick(packages, name).name for name in names]


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.matrix", description="The rows of CI as JSON.")
    parser.add_argument("--affected", metavar="JSON", help="what ci.affected printed; - reads it from stdin")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        packages = workspace.load(root)
        found = rows(packages, tox_environments(root), _affected(options.affected, packages))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps({"include": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
