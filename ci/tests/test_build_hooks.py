# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages with a compiled library have the same build hook: each sdist needs its own copy."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_hooks_that_compile_a_library_are_copies_of_one_file() -> None:
    hooks = [ROOT / "packages" / package / "hatch_build.py" for package in ("accel-cpu", "accel-host")]
    assert len({hook.read_text() for hook in hooks}) == 1
