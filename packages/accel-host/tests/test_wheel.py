# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The wheel carries the library, and the source for machines that it does not fit; the sdist is all it takes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
WORKSPACE = PACKAGE.parents[1] / "shared" / "csrc"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, and of what it shares, in which builds leave their traces."""
    missing = [name for name in ("hatchling", "build") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.fail(f"not run: package {' and '.join(missing)}")
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(
        PACKAGE, root / "packages/accel-host", ignore=shutil.ignore_patterns("build", "__pycache__")
    )
    if WORKSPACE.is_dir():
        shutil.copytree(WORKSPACE, root / "shared/csrc")
    return root / "packages/accel-host"


def built(folder: Path, out: Path, *options: str, **environment: str) -> Path:
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(out), str(folder)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = out.iterdir()
    return file


def test_the_wheel_from_the_sdist_carries_library_and_sources(tree: Path, tmp_path: Path) -> None:
    sdist = built(tree, tmp_path / "sdist", "--sdist")
    subprocess.run(["tar", "xzf", sdist, "-C", tmp_path], check=True)
    # An empty folder with the sdist alone: nothing of the workspace beside it.
    wheel = built(tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "wheel", "--wheel")
    assert "-py3-none-" in wheel.name
    assert "any" not in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "accel_host/lib/libaccel_host.so" in names
    assert "accel_host/csrc/optimizers.cpp" in names
    assert "accel_host/include/accel/optimizers.h" in names
    # The wheel's own files, without the checkout, serve: by the library, and by the sources alone.
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    for own_library in (True, False):
        if not own_library:
            shutil.rmtree(tmp_path / "site/accel_host/lib")
        program = "from accel_host import library as l; print(l.__file__); print(l.load().reason)"
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path / "site"),
            "ACCEL_CACHE_DIR": str(tmp_path / "cache"),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        where, reason = done.stdout.splitlines()
        assert where.startswith(str(tmp_path))
        assert reason.startswith("built library of the wheel" if own_library else "compiled on this machine")


def test_without_a_compiler_the_wheel_is_for_every_machine(tree: Path, tmp_path: Path) -> None:
    wheel = built(tree, tmp_path / "wheel", "--wheel", ACCEL_NO_NATIVE="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "accel_host/csrc/optimizers.cpp" in names
    assert "accel_host/lib/libaccel_host.so" not in names
