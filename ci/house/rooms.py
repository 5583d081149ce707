# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every vendor package has the same rooms: whoever knows one finds his way in the next."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ci.house.source import Violation
from ci.workspace import Package

PACKAGE_ROOMS = ("README.md", "CHANGELOG.md", "changelog.d/")
MODULE_ROOMS = (
    "__init__.py",
    "__about__.py",
    "vendor.py",
    "probe.py",
    "traits.py",
    "accelerator.py",
    "op_builder/",
)


def check(packages: Mapping[str, Package], files: Collection[str]) -> Iterator[Violation]:
    """Rooms that are missing in the packages with an entry point in accel.vendors."""
    for package in packages.values():
        if not package.vendors:
            continue
        rooms = [f"{package.folder}/{room}" for room in PACKAGE_ROOMS]
        rooms += [f"{package.room}/{room}" for room in MODULE_ROOMS]
        for room in rooms:
            if not _is_there(room, files):
                yield Violation(
                    f"{package.folder}/pyproject.toml", 1, "a vendor package has all rooms", f"no {room}"
                )


def _is_there(room: str, files: Collection[str]) -> bool:
    return any(file.startswith(room) for file in files) if room.endswith("/") else room in files
