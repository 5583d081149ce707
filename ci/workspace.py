# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages of this repository, read from packages/*: no list of them is kept anywhere.

Why: tools that know workspaces want their own lock file and list of members; these packages are installed by pip.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from ci.program import Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

parse_toml = tomllib.loads

CORE = "accel-core"


@dataclass(frozen=True)
class Package:
    """One folder of packages/; its table [project], what an install needs, and its entry points accel.vendors."""

    name: str
    version: Version
    project: Mapping[str, Any]
    requires: tuple[Requirement, ...]
    vendors: Mapping[str, str]

    @property
    def folder(self) -> str:
        """The folder, relative to the root, as git writes it."""
        return f"packages/{self.name}"

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    @property
    def source(self) -> str:
        """The folder of the sources, relative to the root."""
        return f"{self.folder}/src/{self.module}"


class Packages(dict[str, Package]):
    """Packages by name, in order of name."""

    def __missing__(self, name: str) -> Package:
        raise Problem(f"no package {name!r}; there are {', '.join(self)}")


def load(root: Path) -> Packages:
    """Return all packages."""
    files = sorted(root.glob("packages/*/pyproject.toml"))
    if not files:
        raise Problem(f"no packages below {root}; run this from the root of a checkout")
    return Packages({file.parent.name: _package(file.parent) for file in files})


def needs(packages: Mapping[str, Package], name: str) -> set[str]:
    """Return the packages of this repository that `name` stands on, directly or not, itself left out."""
    direct = {each.name for each in packages[name].requires} & packages.keys()
    return direct.union(*(needs(packages, each) for each in direct))


def read_toml(file: Path) -> dict[str, Any]:
    """Return the tables of a TOML file."""
    return parse_toml(file.read_text(encoding="utf-8"))


def _package(folder: Path) -> Package:
    project = read_toml(folder / "pyproject.toml")["project"]
    (about,) = folder.glob("src/*/__about__.py")
    return Package(
        name=folder.name,
        version=Version(
            re.findall(r'^__version__ = "(.+)"$', about.read_text(encoding="utf-8"), re.MULTILINE)[0]
        ),
        project=project,
        requires=tuple(Requirement(text) for text in project.get("dependencies", ())),
        vendors=project.get("entry-points", {}).get("accel.vendors", {}),
    )
