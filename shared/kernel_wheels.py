# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Wheels of the packages with kernels for devices, and the files that they have for them."""

import os
import shutil
import sys
import zipfile
from pathlib import Path

from accel_core.processes import Ended, run

INSIDE = "/kernels/images/"


def copied(package: Path, folder: Path) -> Path:
    """Copy a package next to the headers, so that a build writes nothing here; returns the copy."""
    shutil.copytree(package.parents[1] / "shared/csrc", folder / "shared/csrc")
    ignored = shutil.ignore_patterns("build", "tests", "__pycache__")
    return Path(shutil.copytree(package, folder / "packages" / package.name, ignore=ignored))


def build(package: Path, out: Path, **settings: str) -> Ended:
    """Build the wheel of a copy."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    return run(command, cwd=package, env={**os.environ, **settings})


def built(package: Path, out: Path) -> dict[str, bytes]:
    """Build, and return the files that the wheel has for kernels."""
    done = build(package, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return contents(out)


def contents(out: Path) -> dict[str, bytes]:
    """Return the files that the wheel in a folder has for kernels."""
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if INSIDE in name]
        return {name.partition(INSIDE)[2]: archive.read(name) for name in names}
