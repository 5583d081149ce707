# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data folders that the build copies from the workspace's shared/: see hatch_build.py."""

from __future__ import annotations

from pathlib import Path


def folder(name: str) -> Path:
    """Return the folder: in the package, or in the workspace of an editable install."""
    packaged = Path(__file__).with_name("data")
    return (packaged if packaged.is_dir() else Path(__file__).resolve().parents[4] / "shared") / name
