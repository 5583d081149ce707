# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What every package says on an index of its origin: where the repository is, and whom to write to.

The address of the repository and an e-mail address are set once, in the root's pyproject.toml under
[tool.accel.contact]. While one is empty no package may state it, and ci.release_check refuses every release.
Why: a pyproject.toml inherits nothing from the root's: each package repeats the addresses, and nothing compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.problem import Problem
from ci.workspace import Package

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AUTHOR = "accel contributors"
SETTINGS = "[tool.accel.contact] of the root's pyproject.toml"


@dataclass(frozen=True)
class Contact:
    """The settings; an empty text is one that the owner has not decided yet."""

    repository: str
    email: str

    def project(self, package: Package) -> dict[str, Any]:
        """The parts of a package's [project] that follow from the settings; None: absent."""
        author = {"name": AUTHOR, "email": self.email} if self.email else {"name": AUTHOR}
        urls = {
            "Homepage": self.repository,
            "Source": f"{self.repository}/tree/main/{package.folder}",
            "Changelog": f"{self.repository}/blob/main/{package.folder}/CHANGELOG.md",
            "Issues": f"{self.repository}/issues",
        }
        return {"authors": [author], "urls": urls if self.repository else None}

    def undecided(self) -> Iterator[Problem]:
        """Each setting that a release needs and that is empty."""
        for name, value in (("repository", self.repository), ("email", self.email)):
            if not value:
                yield Problem(
                    what=f"an index could not say where the package comes from: no {name}",
                    found=f'{name} = "" in {SETTINGS}',
                    expected="the address that users may go to or write to",
                    do="set it there; python -m pytest ci/tests/test_contact.py names each package's line",
                )


def load(root: Path) -> Contact:
    settings = _toml(root / "pyproject.toml").get("tool", {}).get("accel", {}).get("contact", {})
    return Contact(settings.get("repository", "").rstrip("/"), settings.get("email", ""))


def problems(root: Path, packages: Iterable[Package]) -> Iterator[Problem]:
    """Packages whose [project] says something else than the settings."""
    contact = load(root)
    for package in packages:
        project = _toml(root / package.folder / "pyproject.toml")["project"]
        for key, wanted in contact.project(package).items():
            if project.get(key) != wanted:
                yield Problem(
                    what=f"{package.name} says something else of its origin than {SETTINGS}",
                    found=f"[project] {key} = {project.get(key)}",
                    expected=f"[project] {key} = {wanted}",
                    do=f"correct it in {package.folder}/pyproject.toml",
                )


def _toml(file: Path) -> Mapping[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
