# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The wheel carries what the package reads from the workspace's shared/ when it is installed in place."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
SHARED = PACKAGE.parents[1] / "shared"


def build(source: Path, out: Path, target: str) -> Path:
    """Build with the package's own back end."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    (built,) = out.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


@pytest.mark.parametrize("through_sdist", [False, True])
def test_template_is_in_the_wheel(through_sdist: bool, tmp_path: Path) -> None:
    source = PACKAGE
    if through_sdist:
        shutil.unpack_archive(build(PACKAGE, tmp_path / "sdist", "sdist"), tmp_path / "unpacked")
        (source,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(build(source, tmp_path / "wheel", "wheel")) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    files = [path for path in (SHARED / "template").rglob("*") if path.is_file()]
    assert files
    for path in files:
        name = f"accel_testkit/{path.relative_to(SHARED).as_posix()}"
        assert packed.get(name) == path.read_bytes(), name
