# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Folders that the build takes over from the workspace's shared/: see hatch_build.py."""

from __future__ import annotations

from pathlib import Path


def folder(name: str) -> Path:
    """Where it is: in the package, or in the workspace that this is installed from in place."""
    packaged = Path(__file__).parent / name
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[4] / "shared" / name
