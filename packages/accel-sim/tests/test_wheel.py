# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The wheel that is built from the sdist carries what the package reads from the workspace's shared/, and works."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shared.children import run

PACKAGE = Path(__file__).parents[1]
SHARED = PACKAGE.parents[1] / "shared"
SIM = (sys.executable, "-m", "accel_core.cli", "sim", "npu", "--")


def build(source: Path, out: Path, target: str, **variables: str) -> Path:
    """Build with the package's own back end."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    environment = {**os.environ, **variables}
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True, timeout=300)
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
    names = {path.name for path in (tmp_path / "site/accel_sim/data/cann").rglob("*")}
    assert {"build.py", "operators.txt", "driver.cpp"} <= names
    assert not [
        path.name for path in (tmp_path / "site").rglob("*") if path.name.startswith(("lib", "test_"))
    ]
    program = "import torch_npu, accel_sim; print(accel_sim.__file__, torch_npu.npu.device_count())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = run(*SIM, sys.executable, "-c", program, env=environment, check=True)
    assert done.stdout.split() == [str(tmp_path / "site/accel_sim/__init__.py"), "2"]


@pytest.mark.more
@pytest.mark.slow
def test_wheel_with_libraries_needs_no_compiler_and_is_for_this_python(tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    subprocess.run([sys.executable, "-m", "accel_sim.build", str(libraries)], check=True, timeout=600)
    wheel = build(PACKAGE, tmp_path / "wheel", "wheel", ACCEL_SIM_LIBRARIES=str(libraries))
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.split("-")[2:4] == [python, python]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    own = {"PYTHONPATH": "site", "ACCEL_CACHE_DIR": "cache"}
    environment = {**os.environ, "CXX": "no-compiler", **{key: str(tmp_path / own[key]) for key in own}}
    program = "import torch, torch_npu; print(torch.ones(3, device='npu').sum().item())"
    command = [*SIM, sys.executable, "-c", program]
    done = run(*command, env=environment)
    assert done.stdout.split() == ["3.0"], done.stderr
    # One of another build of torch does not load: it is as if there were none.
    (library,) = (tmp_path / "site").rglob("*.so")
    library.write_bytes(b"not a library")
    done = run(*command, env=environment)
    assert "no C++ compiler 'no-compiler' on PATH" in done.stderr
