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
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ci import api, workspace
from ci.problem import Problem, report
from ci.workspace import CORE, Package

TAG = re.compile(r"(?P<name>[a-z0-9-]+)-v(?P<version>[0-9].*)")


def problems(root: Path, tag: str) -> Iterator[Problem]:
    """Every rule that this tag breaks. Raises Problem where the package or its version cannot be known."""
    yield from check_git(root, tag)
    match = TAG.fullmatch(tag)
    if match is None or not _is_normal(match["version"]):
        raise Problem(
            what=f"{tag!r} is not a release tag",
            found=f"{tag!r}",
            expected="<package>-v<version> with a normalized version, as accel-cpu-v0.1.0",
            do="name the package and its version",
        )
    packages = workspace.load(root)
    package = workspace.pick(packages, match["name"])
    yield from check_version(package, match["version"])
    yield from check_changelog(root, package, match["version"])
    yield from check_origin(package)
    yield from check_siblings(root, packages, package)
    if package.name == CORE:
        yield from check_interface(root, package)
        yield from api.check(root)


def check_git(root: Path, tag: str) -> Iterator[Problem]:
    """The tree is what HEAD says, and the tag, where it exists, names HEAD."""
    if changes := _git(root, "status", "--porcelain").splitlines():
        yield Problem(
            what="the working tree is not what HEAD says",
            found=f"{len(changes)} uncommitted: {', '.join(change.strip() for change in changes[:5])}",
            expected="git status without a line",
            do="commit them, or release from a fresh clone",
        )
    tagged, head = (
        _git(root, "rev-parse", "-q", "--verify", f"{name}^{{commit}}")
        for name in (f"refs/tags/{tag}", "HEAD")
    )
    if tagged not in ("", head):
        yield Problem(
            what=f"the tag {tag} is not here",
            found=f"it names commit {tagged}, HEAD is {head}",
            expected="both are the same commit",
            do=f"git switch --detach {tag}, or choose the next version: a released tag never moves",
        )


def check_version(package: Package, version: str) -> Iterator[Problem]:
    if str(package.version) != version:
        yield Problem(
            what=f"the tag's version is not that of {package.name}",
            found=f"{package.source}/__about__.py says {package.version}",
            expected=version,
            do=f"set __version__ in {package.source}/__about__.py, or tag {package.name}-v{package.version}",
        )


def check_changelog(root: Path, package: Package, version: str) -> Iterator[Problem]:
    """A dated section that says something, and no fragment left over."""
    file = root / package.folder / "CHANGELOG.md"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    build = f"cd {package.folder} && towncrier build --version {version}"
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\) *\n\s*(?!## )\S"
    if not re.search(heading, text, re.MULTILINE):
        yield Problem(
            what=f"the changelog of {package.name} has no section for {version}",
            found="no such section, or an empty one",
            expected=f"`## {version} (YYYY-MM-DD)` in {package.folder}/CHANGELOG.md, and text below it",
            do=build,
        )
    folder = root / package.folder / "changelog.d"
    fragments = sorted(path.name for path in folder.glob("*") if not path.name.startswith("."))
    if fragments:
        yield Problem(
            what=f"changes of {package.name} are not in its changelog yet",
            found=f"{package.folder}/changelog.d holds {', '.join(fragments)}",
            expected="no fragment left",
            do=build,
        )


def check_origin(package: Package) -> Iterator[Problem]:
    """An index can say where the package comes from, and whom to write to."""
    stated = {
        *package.project.get("urls", {}),
        *(key for author in package.project["authors"] for key in author),
    }
    if missing := sorted({"Source", "Issues", "Changelog", "email"} - stated):
        yield Problem(
            what=f"an index could not say where {package.name} comes from",
            found=f"[project] of {package.folder}/pyproject.toml has no {', '.join(missing)}",
            expected="Source, Issues and Changelog in [project.urls], and an author's email",
            do="add them: the owner decides the addresses",
        )


def check_interface(root: Path, core: Package) -> Iterator[Problem]:
    """Each interface number has one minor release of core."""
    number = api.current(root)
    if number and core.version.release[:2] != (0, number - 1):
        yield Problem(
            what=f"{CORE} {core.version} does not have the interface number of that release",
            found=f"INTERFACE_VERSION = {number}",
            expected=f"{core.version.minor + 1}: a minor release and a new number come together",
            do=f"release {CORE} {release_of(number)}.*, or correct INTERFACE_VERSION (CONTRIBUTING.md)",
        )


def check_siblings(root: Path, packages: Mapping[str, Package], package: Package) -> Iterator[Problem]:
    """Packages of this repository are required as a range that admits the version in the tree.

    Core's is that of the releases which take the package's interface number; another's is `>=X.Y,<X+1`.
    """
    required = {each.name: each.specifier for each in package.requires if each.name in packages}
    if package.vendors:
        required.setdefault(CORE, SpecifierSet())
    for name, specifier in required.items():
        version = packages[name].version
        lower = Version(next((spec.version for spec in specifier if spec.operator == ">="), "0"))
        if name == CORE:
            lowest, upper = core_range(root, packages, package)
            lower = max(lower, Version(lowest))
        else:
            lower = lower if lower.release > (0,) else Version(f"{version.major}.{version.minor}")
            upper = str(lower.major + 1)
        wanted = SpecifierSet(f">={lower},<{upper}")
        if specifier != wanted or not specifier.contains(version, prereleases=True):
            yield Problem(
                what=f"{package.name} does not require {name} as a range that admits the one in this tree",
                found=f"{name}{specifier}; the tree has {name} {version}",
                expected=f"{name}>={lower},<{upper}; never ==",
                do=f"correct it in {package.folder}/pyproject.toml",
            )


def release_of(interface: int) -> str:
    """Return the minor release of core with this interface number, such as `0.1`."""
    return f"0.{interface - 1}"


def core_range(root: Path, packages: Mapping[str, Package], package: Package) -> tuple[str, str]:
    """The first release of core that takes every interface number of the records, and the first that refuses one.

    A package without a record has the number of the tree's core.
    """
    sources = (file.read_text(encoding="utf-8") for file in (root / package.source).rglob("*.py"))
    found = [
        number for text in sources for number in re.findall(r"^    interface=(\d+),$", text, re.MULTILINE)
    ]
    numbers = [int(number) for number in found] or [packages[CORE].version.minor + 1]
    return release_of(max(numbers)), release_of(min(numbers) + 2)


def _is_normal(text: str) -> bool:
    try:
        version = Version(text)
    except InvalidVersion:
        return False
    # The index refuses local versions.
    return str(version) == text and version.local is None


def _git(root: Path, *arguments: str) -> str:
    """What git prints; empty where it fails."""
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.release_check", description="May this tag be released?"
    )
    parser.add_argument("tag", help="<package>-v<version>, as accel-cpu-v0.1.0")
    tag = parser.parse_args(arguments).tag
    return report(problems(root or Path.cwd(), tag), f"{tag}: ready to release")


if __name__ == "__main__":
    sys.exit(main())
