# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data folders and pages that the build copies from the workspace's shared/ and docs/: see hatch_build.py."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def folder(name: str) -> Path:
    """Return the folder: in the package, or in the workspace of an editable install."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _workspace() / "shared" / name


def page(name: str) -> Path:
    """Return the path of a page of the documentation, as `page("writing-a-vendor")`."""
    packaged = _PACKAGE / "docs"
    return (packaged if packaged.is_dir() else _workspace() / "docs") / f"{name}.md"


def _workspace() -> Path:
    return Path(__file__).resolve().parents[4]
