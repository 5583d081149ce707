# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The wheel that is built from the sdist carries what the package reads from the workspace's shared/, and works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SHARED = PACKAGE.parents[1] / "shared"


def build(source: Path, out: Path, target: str) -> Path:
    """Build with the package's own back end."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    (built,) = out.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def test_wheel_from_the_sdist_has_its_data_and_makes_a_device(tmp_path: Path) -> None:
    shutil.unpack_archive(build(PACKAGE, tmp_path / "sdist", "sdist"), tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(build(source, tmp_path / "wheel", "wheel")) as archive:
        archive.extractall(tmp_path / "site")
    for folder in ("surfaces", "csrc"):
        files = [path for path in (SHARED / folder).rglob("*") if path.is_file()]
        assert files
        for path in files:
            packed = tmp_path / "site/accel_sim/data" / path.relative_to(SHARED)
            assert packed.read_bytes() == path.read_bytes(), path
    program = "import torch_npu, accel_sim; print(accel_sim.__file__, torch_npu.npu.device_count())"
    done = subprocess.run(
        [sys.executable, "-m", "accel_core.cli", "sim", "npu", "--", sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path / "site/accel_sim/__init__.py"), "2"]
