# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel's runtimes on this machine, and wheels that are built with them.

ACCEL_XPU_RUNTIMES names folders, each with intel-sycl-rt and intel-opencl-rt of one release, 1.5 GB: the tox
environment xpu-kernels installs them.
"""

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tomli

PACKAGE = Path(__file__).parents[1]
FOLDER = "packages/accel-xpu"
INSIDE = "accel_xpu/kernels/images/"
_HOOK = tomli.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["hooks"][
    "custom"
]
#: Releases that the build needs; the tests run on each that there is.
NEEDED = tuple(dict.fromkeys([_HOOK["compiler"], *_HOOK["shims"]]))
MISSING = (
    "not run: intel-sycl-rt and intel-opencl-rt {} are not in ACCEL_XPU_RUNTIMES (tox run -e xpu-kernels)"
)


def hook() -> Any:
    """Return the module of the build hook."""
    spec = importlib.util.spec_from_file_location("hatch_kernels", PACKAGE / "hatch_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installed() -> dict[str, Path]:
    """Return the folders of runtimes by their releases."""
    named = filter(None, os.environ.get("ACCEL_XPU_RUNTIMES", "").split(os.pathsep))
    found = {hook().release_of(Path(folder)): Path(folder) for folder in named}
    return {release: folder for release, folder in sorted(found.items()) if release}


def require() -> None:
    """Skip the test where the build has not what it needs."""
    lacking = [release for release in NEEDED if release not in installed()]
    if lacking:
        pytest.skip(MISSING.format(" and ".join(lacking)))


def checkout(folder: Path) -> Path:
    """Copy the package beside the headers, so that a build writes nothing here."""
    shutil.copytree(PACKAGE.parents[1] / "shared/csrc", folder / "shared/csrc")
    ignored = shutil.ignore_patterns("build", "tests", "__pycache__")
    shutil.copytree(PACKAGE, folder / FOLDER, ignore=ignored)
    return folder


@functools.cache
def files() -> dict[str, bytes]:
    """Return the files that a wheel has for kernels, built once: a minute of the compilers. Skips as `require` does."""
    require()
    with tempfile.TemporaryDirectory(prefix="accel-xpu-") as folder:
        return built(checkout(Path(folder, "checkout")), Path(folder, "out"))


def build(checkout: Path, out: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Build the wheel of a copy."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    environment = {**os.environ, **settings}
    return subprocess.run(
        command, cwd=checkout / FOLDER, check=False, capture_output=True, text=True, env=environment
    )


def built(checkout: Path, out: Path) -> dict[str, bytes]:
    """Build, and return the files that the wheel has for kernels."""
    done = build(checkout, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return contents(out)


def contents(out: Path) -> dict[str, bytes]:
    """Return the files that the wheel in a folder has for kernels."""
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(INSIDE)]
        return {name.removeprefix(INSIDE): archive.read(name) for name in names}
