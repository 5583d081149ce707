# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""May this tag be released?

    python -m ci.release_check accel-cpu-v0.1.0

Compares tag, version, changelog, origin, the packages it stands on (their range, and the names it imports of the
lowest version in it), and git; needs no credential and changes nothing. Reports every rule that does not hold, all at
once, and exits with 1.
Why: tools of a release (twine, towncrier) see one package, not its siblings in the same repository nor git's tag.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ci import contact, git, lowest, public_api, workspace
from ci.problem import CheckError, Problem, report
from ci.workspace import CORE, Package

TAG = re.compile(r"(?P<name>[a-z0-9-]+)-v(?P<version>[0-9].*)")


def problems(root: Path, tag: str) -> list[Problem]:
    """Every rule that this tag breaks."""
    packages = workspace.load(root)
    found = [*check_git(root, tag)]
    match = TAG.fullmatch(tag)
    if match is None or not _is_normal(match["version"]):
        found.append(
            Problem(
                what=f"{tag!r} is not a release tag",
                found=f"{tag!r}",
                expected="<package>-v<version> with a normalized version, as accel-cpu-v0.1.0",
                do="name the package and its version",
            )
        )
        return found
    try:
        package = workspace.pick(packages, match["name"])
    except CheckError as error:
        return [*found, error.problem]
    version = Version(match["version"])
    found += check_version(package, version)
    found += check_changelog(root, package, version)
    found += check_siblings(root, packages, package)
    found += check_interface(root, package)
    found += lowest.check(root, packages, package)
    found += contact.load(root).undecided()
    found += contact.problems(root, [package])
    return found


def check_git(root: Path, tag: str) -> Iterator[Problem]:
    """The tree is what HEAD says, and the tag, where it exists, names HEAD."""
    if changes := git.uncommitted(root):
        yield Problem(
            what="the working tree is not what HEAD says",
            found=f"{len(changes)} uncommitted: {', '.join(change.strip() for change in changes[:5])}",
            expected="git status without a line",
            do="commit them, or release from a fresh clone",
        )
    tagged, head = git.try_commit(root, f"refs/tags/{tag}"), git.commit(root, "HEAD")
    if tagged not in (None, head):
        yield Problem(
            what=f"the tag {tag} is not here",
            found=f"it names commit {tagged}, HEAD is {head}",
            expected="both are the same commit",
            do=f"git switch --detach {tag}, or choose the next version: a released tag never moves",
        )


def check_version(package: Package, version: Version) -> Iterator[Problem]:
    if package.version != version:
        yield Problem(
            what=f"the tag's version is not that of {package.name}",
            found=f"{package.source}/__about__.py says {package.version}",
            expected=str(version),
            do=f"set __version__ in {package.source}/__about__.py, or tag {package.name}-v{package.version}",
        )


def check_changelog(root: Path, package: Package, version: Version) -> Iterator[Problem]:
    """A dated section that says something, and no fragment left over."""
    file = root / package.folder / "CHANGELOG.md"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    build = f"cd {package.folder} && towncrier build --version {version}"
    section = _section(text, version)
    if section is None or not section.strip():
        yield Problem(
            what=f"the changelog of {package.name} has no section for {version}",
            found="that section is empty" if section is not None else "no such section",
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


def check_interface(root: Path, package: Package) -> Iterator[Problem]:
    """Each interface number has one minor release of core."""
    number = public_api.number(public_api.load(root / package.folder / "src", package.module))
    if package.name == CORE and number and package.version.release[:2] != (0, int(number) - 1):
        yield Problem(
            what=f"{CORE} {package.version} does not have the interface number of that release",
            found=f"INTERFACE_VERSION = {number}",
            expected=f"{package.version.minor + 1}: a minor release and a new number come together",
            do=f"release {CORE} 0.{int(number) - 1}.*, or correct INTERFACE_VERSION (CONTRIBUTING.md)",
        )


def check_siblings(root: Path, packages: Mapping[str, Package], package: Package) -> Iterator[Problem]:
    """Packages of this repository are required as `>=X.Y,<X+1`, and the tree's version is in that range.

    Core's upper bound is the first release that refuses the package's interface number.
    """
    siblings = [(n, r) for r in package.requires if (n := canonicalize_name(r.name)) in packages]
    if package.vendors and CORE not in dict(siblings):
        yield Problem(
            what=f"{package.name} does not require {CORE}",
            found=f"no {CORE} in [project] dependencies, but an entry point in {workspace.VENDOR_GROUP}",
            expected=f"{CORE}{_core_range(_numbers(root, packages, package))}",
            do=f"add it to {package.folder}/pyproject.toml",
        )
    for name, requirement in siblings:
        version = packages[name].version
        numbers = _numbers(root, packages, package)
        fits = _is_core_range(requirement, numbers) if name == CORE else _is_range(requirement)
        if fits and requirement.specifier.contains(version, prereleases=True):
            continue
        example = _core_range(numbers) if name == CORE else _range(version)
        yield Problem(
            what=f"{package.name} does not require {name} as a range that admits the one in this tree",
            found=f"{requirement}; the tree has {name} {version}",
            expected=f"a range that admits {version}, as {name}{example}; never ==",
            do=f"correct it in {package.folder}/pyproject.toml",
        )


def _bounds(requirement: Requirement) -> tuple[Version, Version] | None:
    """Lower and upper bound of a requirement that consists of these two."""
    specs = {
        spec.operator: Version(spec.version) for spec in requirement.specifier if spec.operator in (">=", "<")
    }
    return (specs[">="], specs["<"]) if len(requirement.specifier) == len(specs) == 2 else None


def _is_range(requirement: Requirement) -> bool:
    bounds = _bounds(requirement)
    return bounds is not None and bounds[1] == Version(str(bounds[0].major + 1))


def _numbers(root: Path, packages: Mapping[str, Package], package: Package) -> set[int]:
    """The interface numbers of the package's records; that of the tree's core if it has none."""
    found = {int(number) for number in lowest.interface_numbers(root / package.source) if number.isdigit()}
    return found or {packages[CORE].version.minor + 1}


def _is_core_range(requirement: Requirement, numbers: set[int]) -> bool:
    """Whether no release of core that refuses one of these numbers is in the range."""
    bounds = _bounds(requirement)
    if bounds is None:
        return False
    return bounds[0] >= Version(f"0.{max(numbers) - 1}") and bounds[1] == Version(f"0.{min(numbers) + 1}")


def _core_range(numbers: set[int]) -> str:
    return f">=0.{max(numbers) - 1},<0.{min(numbers) + 1}"


def _range(version: Version) -> str:
    return f">={version.major}.{version.minor},<{version.major + 1}"


def _is_normal(text: str) -> bool:
    try:
        version = Version(text)
    except InvalidVersion:
        return False
    # The index refuses local versions.
    return str(version) == text and version.local is None


def _section(changelog: str, version: Version) -> str | None:
    """Text below the heading `## <version> (<date>)`; None without such a heading or date."""
    parts = re.split(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)[ ]*$", changelog, flags=re.MULTILINE)
    for heading, date, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if heading == str(version) and _is_date(date):
            return text
    return None


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.release_check", description="May this tag be released?"
    )
    parser.add_argument("tag", help="<package>-v<version>, as accel-cpu-v0.1.0")
    options = parser.parse_args(arguments)
    try:
        return report(problems(root or Path.cwd(), options.tag), f"{options.tag}: ready to release")
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
