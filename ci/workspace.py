# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The packages of this repository, read from packages/*: no list of them is kept anywhere.

Why: tools that know workspaces want their own lock file and list of members; these packages are installed by pip.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ci.problem import CheckError, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Every package stands on the one and is tested with the other: a change to them affects all.
CORE, TESTKIT = "accel-core", "accel-testkit"
VENDOR_GROUP = "accel.vendors"


@dataclass(frozen=True)
class Package:
    """One folder of packages/.

    name:     canonical distribution name, which is the folder's name too.
    folder:   relative to the root, as git writes it.
    requires: what a user's install needs; development: the further ones of extras and dependency groups.
    vendors:  the entry points of group accel.vendors, name -> object reference.
    python:   lowest Python it takes, as "3.10"; newest: the highest among its classifiers.
    """

    name: str
    folder: str
    module: str
    version: Version
    requires: tuple[Requirement, ...]
    development: tuple[Requirement, ...]
    vendors: Mapping[str, str]
    python: str
    newest: str
    description: str = ""

    @property
    def source(self) -> str:
        """The package's source folder, relative to the root."""
        return f"{self.folder}/src/{self.module}"


def load(root: Path) -> dict[str, Package]:
    """All packages by name, in order of name. Raises CheckError for one that cannot be read."""
    files = sorted(root.glob("packages/*/pyproject.toml"))
    if not files:
        raise CheckError(
            Problem(
                what=f"no packages below {root}",
                found="no file packages/*/pyproject.toml",
                expected="the root of the accel repository",
                do="run this from the root of a checkout",
            )
        )
    packages = (_read(root, file) for file in files)
    return {package.name: package for package in packages}


def pick(packages: Mapping[str, Package], name: str) -> Package:
    """The package of that name. Raises CheckError, which lists the names there are."""
    if name not in packages:
        raise CheckError(
            Problem(
                what=f"no package {name!r} in this repository",
                found=f"packages/{name}/pyproject.toml does not exist",
                expected=f"one of {', '.join(packages)}",
                do="correct the name",
            )
        )
    return packages[name]


def needs(packages: Mapping[str, Package], name: str, *, development: bool = False) -> set[str]:
    """Packages of this repository that `name` stands on, directly or not, itself left out."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        package = packages[waiting.pop()]
        requires = package.requires + (package.development if development else ())
        new = {canonicalize_name(r.name) for r in requires} & packages.keys() - found - {name}
        found |= new
        waiting += new
    return found


def _read(root: Path, file: Path) -> Package:
    try:
        return _package(root, file, tomllib.loads(file.read_text(encoding="utf-8")))
    except (KeyError, StopIteration, ValueError, OSError) as error:
        where = file.relative_to(root).as_posix()
        raise CheckError(
            Problem(
                what=f"{where} cannot be read as a package of this repository",
                found=f"{type(error).__name__}: {error}",
                expected="[project] with name, requires-python and dependencies, "
                "and src/<module>/__about__.py with a valid __version__",
                do="compare it with packages/accel-core",
            )
        ) from error


def _package(root: Path, file: Path, data: Mapping[str, Any]) -> Package:
    project = data["project"]
    name = canonicalize_name(project["name"])
    module = name.replace("-", "_")
    extras = _flat(project.get("optional-dependencies", {}).values())
    groups = _flat(data.get("dependency-groups", {}).values())
    return Package(
        name=name,
        folder=file.parent.relative_to(root).as_posix(),
        module=module,
        version=_version(file.parent / "src" / module / "__about__.py"),
        requires=tuple(Requirement(text) for text in project.get("dependencies", ())),
        development=tuple(Requirement(text) for text in [*extras, *groups]),
        vendors=dict(project.get("entry-points", {}).get(VENDOR_GROUP, {})),
        python=_lowest(project["requires-python"]),
        newest=_newest(project.get("classifiers", ()), _lowest(project["requires-python"])),
        description=project.get("description", ""),
    )


def _flat(lists: Iterable[list[Any]]) -> list[str]:
    # A dependency group may include another by a table; what it includes is listed there already.
    return [item for items in lists for item in items if isinstance(item, str)]


def _lowest(requires_python: str) -> str:
    return next(spec.version for spec in SpecifierSet(requires_python) if spec.operator == ">=")


def _newest(classifiers: Iterable[str], lowest: str) -> str:
    """The highest `Programming Language :: Python :: 3.x`; the lowest that is taken where none is stated."""
    found = re.findall(
        r"^Programming Language :: Python :: (\d+\.\d+)$", "\n".join(classifiers), re.MULTILINE
    )
    return str(max(map(Version, [*found, lowest])))


def _version(about: Path) -> Version:
    """`__version__` of an __about__.py, read without running it."""
    for node in ast.parse(about.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return Version(ast.literal_eval(node.value))
    raise InvalidVersion(f"{about.name} assigns no __version__")
