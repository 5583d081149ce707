# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""May this tag be released?

    python -m ci.release_check accel-cpu-v0.1.0

Compares tag, version, changelog, origin, the ranges of the packages it stands on, and git; for accel-core its public
names with the last release, too. Needs no credential and changes nothing. Reports every rule that does not hold, all
at once, and exits with 1.
Why: tools of a release (twine, towncrier) see one package, not its siblings in the same repository nor git's tag.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ci import api, workspace
from ci.program import Problem, git, report
from ci.workspace import CORE, Package


def problems(root: Path, tag: str) -> Iterator[Problem]:
    """Yield every rule that this tag breaks."""
    name, _, version = tag.rpartition("-v")
    packages = workspace.load(root)
    package = packages[name]
    folder = root / package.folder
    settings, build = f"{package.folder}/pyproject.toml", f"run `cd {package.folder} && towncrier build`"
    section = re.compile(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\) *\n\s*(?!## )\S", re.MULTILINE)
    fragments = ", ".join(sorted(path.name for path in folder.glob("changelog.d/[!.]*")))
    authors = (key for author in package.project["authors"] for key in author)
    missing = {"Source", "Issues", "Changelog", "email"} - {*package.project.get("urls", {}), *authors}
    here = git(root, "tag", "--points-at", "HEAD").split()
    holds = {
        "commit all changes, or release from a fresh clone": not git(root, "status", "--short"),
        f"check out {tag}, which is another commit": tag in here or not git(root, "tag", "--list", tag),
        f"set __version__ of {name}, which is {package.version}": str(package.version) == version,
        f"{build}: no dated section for {version} with text": section.search(_read(folder / "CHANGELOG.md")),
        f"{build}: changelog.d holds {fragments}": not fragments,
        f"add to [project] of {settings}: {', '.join(sorted(missing))}": not missing,
        **{f"require {each} in {settings}": False for each in unfit(root, packages, package)},
    }
    if name == CORE:
        number = api.number(root)
        fits = package.version.release[:2] == (0, number - 1)
        holds[f"release {release_of(number)}.*, or correct INTERFACE_VERSION: it is {number}"] = fits
    yield from (Problem(what) for what, held in holds.items() if not held)
    if name == CORE:
        yield from api.check(root)


def unfit(root: Path, packages: Mapping[str, Package], package: Package) -> Iterator[str]:
    """Yield the right requirements on packages of this repository that are required in another way.

    Core's range is that of the releases which take the package's interface number; another's is `>=X.Y,<X+1`.
    """
    required = {each.name: each.specifier for each in package.requires if each.name in packages}
    if package.vendors:
        required.setdefault(CORE, SpecifierSet())
    for name, specifier in required.items():
        version = packages[name].version
        lower = Version(next((each.version for each in specifier if each.operator == ">="), "0"))
        upper = str(lower.major + 1)
        if name == CORE:
            sources = "\n".join(map(_read, (root / package.source).rglob("*.py")))
            found = re.findall(r"^    interface=(\d+),$", sources, re.MULTILINE)
            # A package without a record has the number of the tree's core.
            numbers = [int(each) for each in found] or [version.minor + 1]
            lower, upper = max(lower, Version(release_of(max(numbers)))), release_of(min(numbers) + 2)
        if specifier != SpecifierSet(f">={lower},<{upper}") or version not in specifier:
            yield f"{name}>={lower},<{upper}"


def release_of(interface: int) -> str:
    """Return the minor release of core with this interface number, such as `0.1`."""
    return f"0.{interface - 1}"


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.release_check", description="Is a tag ready?")
    parser.add_argument("tag", help="<package>-v<version>, as accel-cpu-v0.1.0")
    tag = parser.parse_args(arguments).tag
    return report(problems(root or Path.cwd(), tag), f"{tag}: ready to release")


if __name__ == "__main__":
    sys.exit(main())
