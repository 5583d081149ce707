# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The template and the pages that the build copies from the workspace's shared/ and docs/: see hatch_build.py."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def template() -> Path:
    """Return the folder of the template: in the package, or in the workspace of an editable install."""
    packaged = _PACKAGE / "template"
    return packaged if packaged.is_dir() else _workspace() / "shared/template"


def page(name: str) -> Path:
    """Return the path of a page of the documentation, as `page("writing-a-vendor")`."""
    packaged = _PACKAGE / "docs"
    return (packaged if packaged.is_dir() else _workspace() / "docs") / f"{name}.md"


def _workspace() -> Path:
    return Path(__file__).resolve().parents[4]
