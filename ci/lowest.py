# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a package find what it imports in the lowest version of a sibling that it accepts?

The lowest version is the first release in the range, read from its tag. Before there is one it is the version in the
tree, and the lower bound has to be that: nobody can try a lower one.
Why: pip and mypy look at the installed version alone.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import griffe
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ci import git, public_api
from ci.problem import Problem
from ci.workspace import CORE, Package


def check(root: Path, packages: Mapping[str, Package], package: Package) -> Iterator[Problem]:
    """A lower bound that was never tried, and names that the lowest version of a sibling lacks."""
    for requirement in package.requires:
        sibling = packages.get(canonicalize_name(requirement.name))
        lower = [Version(s.version) for s in requirement.specifier if s.operator == ">="]
        if sibling is None or not lower:
            continue  # a third party's, or no range: ci.release_check says so
        released = git.releases(root, sibling.name)
        tag = next(
            (t for v, t in released.items() if requirement.specifier.contains(v, prereleases=True)), None
        )
        if tag is None and lower[0].release[:2] < sibling.version.release[:2]:
            yield _stale(package, requirement, sibling)
        yield from _missing(root, package, sibling, tag)


def _stale(package: Package, requirement: Requirement, sibling: Package) -> Problem:
    return Problem(
        what=f"{package.name} accepts a {sibling.name} that nobody can try",
        found=f"{requirement}; no release in that range, the tree has {sibling.version}",
        expected=f"a lower bound that was released, or {sibling.name}>={sibling.version.major}.{sibling.version.minor}",
        do=f"raise the lower bound in {package.folder}/pyproject.toml",
    )


def _missing(root: Path, package: Package, sibling: Package, tag: str | None) -> Iterator[Problem]:
    names = imported(root / package.source, sibling.module)
    with tempfile.TemporaryDirectory(prefix="accel-lowest-") as folder:
        source = f"{sibling.folder}/src"
        place = git.export(root, tag, source, Path(folder)) if tag else root / source
        loaded = public_api.load(place, sibling.module)
        gone = {name: where for name, where in names.items() if not _exists(loaded, name)}
        theirs = public_api.number(loaded)
    lowest = tag or f"{sibling.name} {sibling.version} of this tree"
    for name, where in sorted(gone.items()):
        yield Problem(
            what=f"{package.name} imports what the lowest {sibling.name} that it accepts lacks",
            found=f"{name} in {package.source}/{where}; {lowest} has no such name",
            expected=f"names that {lowest} has",
            do=f"raise the lower bound of {sibling.name} in {package.folder}/pyproject.toml, or use another name",
        )
    ours = interface_numbers(root / package.source) if sibling.name == CORE else set()
    if ours - {theirs}:
        yield Problem(
            what=f"{package.name} is refused by the lowest {CORE} that it accepts",
            found=f"interface={', '.join(sorted(ours))} in its Vendor records; {lowest} has {theirs or 'no number'}",
            expected=f"the interface number of {lowest}",
            do=f"raise the lower bound of {CORE} in {package.folder}/pyproject.toml",
        )


def interface_numbers(source: Path) -> set[str]:
    """The literal `interface=` of every Vendor record below `source`."""
    calls = (node for file in sorted(source.rglob("*.py")) for node in ast.walk(_parse(file)))
    return {
        ast.unparse(keyword.value)
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "Vendor"
        for keyword in call.keywords
        if keyword.arg == "interface"
    }


def imported(source: Path, module: str) -> dict[str, str]:
    """Every dotted name of `module` that the files below `source` import -> the first file and line that does."""
    found: dict[str, str] = {}
    for file in sorted(source.rglob("*.py")):
        for node in ast.walk(_parse(file)):
            for name in _names(node):
                if name.split(".")[0] == module:
                    found.setdefault(
                        name, f"{file.relative_to(source).as_posix()}:{getattr(node, 'lineno', 1)}"
                    )
    return found


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), file.name)


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        # `import *` needs the module alone.
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")]
    return []


def _exists(package: griffe.Module, name: str) -> bool:
    """A name that a module-level `__getattr__` may give counts where the module lists it in `__all__`."""
    if public_api.member(package, name) is not None:
        return True
    parent, _, last = name.rpartition(".")
    found = public_api.member(package, parent) if parent else None
    exports = found.exports if isinstance(found, griffe.Module) else None
    return bool(exports) and last in map(str, exports or ())
