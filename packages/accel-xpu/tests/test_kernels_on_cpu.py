# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The packaged SPIR-V through the real libsycl on Intel's OpenCL for CPUs, on each runtime that there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import accel_sim

from . import runtimes

FOUND = runtimes.installed()
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged files, as the build of the wheel makes them."""
    folder = tmp_path_factory.mktemp("images")
    for name, content in runtimes.files().items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("release", FOUND or ["none"])
def test_kernels_on_the_cpu(release: str, images: Path, tmp_path: Path) -> None:
    variables = runtimes.hook().environment(FOUND[release], tmp_path)
    variables |= {"ACCEL_XPU_RUNTIME": str(FOUND[release]), "ACCEL_XPU_FILES": str(images)}
    base = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", str(HERE / "spirv")],
        env=accel_sim.environment("xpu", base=base), capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip
    assert not done.returncode, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
