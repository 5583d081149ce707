# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data folders that the build copies from the workspace: see hatch_build.py."""

from __future__ import annotations

from pathlib import Path

#: Folders that are not in shared/ but in the test tree.
_OF_TESTS = {"cann": "tests/runtimes/cann"}


def folder(name: str) -> Path:
    """Return the folder: in the package, or in the workspace of an editable install."""
    packaged = Path(__file__).with_name("data")
    if packaged.is_dir():
        return packaged / name
    return Path(__file__).resolve().parents[4] / _OF_TESTS.get(name, f"shared/{name}")
