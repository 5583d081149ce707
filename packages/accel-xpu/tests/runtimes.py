# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel's runtimes on this machine, and wheels that are built with them.

ACCEL_XPU_RUNTIMES names folders, each with intel-sycl-rt and intel-opencl-rt of one release, 1.5 GB: the tox
environment xpu-kernels installs them.
"""

import functools
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import tomli

from shared import kernel_wheels

PACKAGE = Path(__file__).parents[1]
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


@functools.cache
def files() -> dict[str, bytes]:
    """Return the files that a wheel has for kernels, built once: a minute of the compilers. Skips as `require` does."""
    require()
    with tempfile.TemporaryDirectory(prefix="accel-xpu-") as folder:
        return kernel_wheels.built(
            kernel_wheels.copied(PACKAGE, Path(folder, "checkout")), Path(folder, "out")
        )
