# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The packages of this repository, read from packages/*: no list of them is kept anywhere.

Why: tools that know workspaces want their own lock file and list of members; these packages are installed by pip.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from ci.problem import Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

parse_toml = tomllib.loads

CORE = "accel-core"
VENDOR_GROUP = "accel.vendors"


@dataclass(frozen=True)
class Package:
    """One folder of packages/.

    name:     distribution name, which is the folder's name too.
    folder:   relative to the root, as git writes it.
    project:  the table [project] of its pyproject.toml.
    requires: what a user's install needs.
    vendors:  the entry points of group accel.vendors, name -> object reference.
    """

    name: str
    folder: str
    module: str
    version: Version
    project: Mapping[str, Any]
    requires: tuple[Requirement, ...]
    vendors: Mapping[str, str]

    @property
    def source(self) -> str:
        """The package's source folder, relative to the root."""
        return f"{self.folder}/src/{self.module}"


def load(root: Path) -> dict[str, Package]:
    """All packages by name, in order of name. Raises Problem for one that cannot be read."""
    files = sorted(root.glob("packages/*/pyproject.toml"))
    if not files:
        raise Problem(
            what=f"no packages below {root}",
            found="no file packages/*/pyproject.toml",
            expected="the root of the accel repository",
            do="run this from the root of a checkout",
        )
    return {file.parent.name: _package(root, file) for file in files}


def pick(packages: Mapping[str, Package], name: str) -> Package:
    """The package of that name. Raises Problem, which lists the names there are."""
    if name not in packages:
        raise Problem(
            what=f"no package {name!r} in this repository",
            found=f"packages/{name}/pyproject.toml does not exist",
            expected=f"one of {', '.join(packages)}",
            do="correct the name",
        )
    return packages[name]


def needs(packages: Mapping[str, Package], name: str) -> set[str]:
    """Packages of this repository that `name` stands on, directly or not, itself left out."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = {each.name for each in packages[waiting.pop()].requires} & packages.keys() - found
        found |= new
        waiting += new
    return found - {name}


def git(checkout: Path, *arguments: str) -> str:
    """Return what git prints. Raises Problem with git's own words."""
    done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, check=False)
    if done.returncode:
        raise Problem(
            what=f"git {arguments[0]} failed in {checkout}",
            found=done.stderr.decode(errors="replace").strip(),
            expected="a git checkout that has the commit or tag",
            do="git fetch --unshallow --tags, or name another commit",
        )
    return done.stdout.decode(errors="replace")


def read_toml(file: Path) -> dict[str, Any]:
    """Return the tables of a TOML file."""
    return parse_toml(file.read_text(encoding="utf-8"))


def _package(root: Path, file: Path) -> Package:
    try:
        project = read_toml(file)["project"]
        name = project["name"]
        module = name.replace("-", "_")
        about = (file.parent / "src" / module / "__about__.py").read_text(encoding="utf-8")
        return Package(
            name=name,
            folder=file.parent.relative_to(root).as_posix(),
            module=module,
            version=Version(re.findall(r'^__version__ = "(.+)"$', about, re.MULTILINE)[0]),
            project=project,
            requires=tuple(Requirement(text) for text in project.get("dependencies", ())),
            vendors=project.get("entry-points", {}).get(VENDOR_GROUP, {}),
        )
    except (LookupError, ValueError, OSError) as error:
        raise Problem(
            what=f"{file.relative_to(root).as_posix()} cannot be read as a package of this repository",
            found=f"{type(error).__name__}: {error}",
            expected="[project] with name and dependencies, and src/<module>/__about__.py with a __version__",
            do=f"compare it with packages/{CORE}",
        ) from error
