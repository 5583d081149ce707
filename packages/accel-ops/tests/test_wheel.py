# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The wheel contains the library, and the source for machines that cannot load it; it is built from the sdist alone."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shared import kernel_wheels
from shared.children import run

PACKAGE = Path(__file__).resolve().parents[1]
LIBRARY = "accel_ops/lib/libaccel_ops.so"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and of the shared headers, for builds that write into it."""
    return kernel_wheels.copied(PACKAGE, tmp_path_factory.mktemp("tree"))


def built(folder: Path, out: Path, kind: str = "wheel", **environment: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out]
    done = run(*command, cwd=folder, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = out.iterdir()
    return file


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel from the sdist, in an empty folder with nothing of the workspace next to it."""
    folder = tmp_path_factory.mktemp("wheel")
    sdist = built(tree, folder / "sdist", "sdist")
    subprocess.run(["tar", "xzf", sdist, "-C", folder], check=True)
    return built(folder / sdist.name.removesuffix(".tar.gz"), folder / "wheel")


def contents(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


@pytest.mark.slow
def test_the_files_of_the_wheel_work_without_the_checkout(wheel, tmp_path):
    """With the library, and with the sources alone."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = "from accel_ops.host import library as l; print(l.__file__); print(l.load().reason)"
    paths = {"PYTHONPATH": str(tmp_path / "site"), "ACCEL_CACHE_DIR": str(tmp_path / "cache")}
    for wanted in ("built library of the wheel", "compiled on this machine"):
        done = run(sys.executable, "-c", program, env=os.environ | paths, check=True)
        where, reason = done.stdout.splitlines()
        assert where.startswith(str(tmp_path))
        assert reason.startswith(wanted)
        shutil.rmtree(tmp_path / "site/accel_ops/lib", ignore_errors=True)


@pytest.mark.sample("here")
@pytest.mark.parametrize("prefix", ["", "aarch64-linux-gnu-"], ids=["here", "aarch64"])
def test_the_library_has_no_symbol_of_torch_libstdcxx_or_a_newer_glibc(request, tmp_path, prefix):
    if prefix and shutil.which(f"{prefix}g++") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not run: package g++-{prefix.strip('-')}")
    if prefix:
        wheel = built(request.getfixturevalue("tree"), tmp_path / "wheel", CXX=f"{prefix}g++")
    else:
        wheel = request.getfixturevalue("wheel")
    target = zipfile.ZipFile(wheel).extract(LIBRARY, tmp_path)
    listed = run(f"{prefix}nm", "-D", "--undefined-only", target, check=True)
    symbols = [line.split()[-1] for line in listed.stdout.splitlines()]
    versions = [symbol.partition("@GLIBC_")[2] for symbol in symbols if "@GLIBC_" in symbol]
    # torch's names and those of libstdc++, whose versions follow the compiler, are C++'s.
    assert not [symbol for symbol in symbols if symbol.startswith("_Z") or "CXX" in symbol]
    # As manylinux2014 requires: the library runs on every machine with glibc 2.17.
    assert max(tuple(map(int, version.split("."))) for version in versions) <= (2, 17)


def test_the_library_has_symbols_of_the_limited_api_alone(wheel, tmp_path):
    module = tmp_path / "accel_ops.abi3.so"
    module.write_bytes(zipfile.ZipFile(wheel).read(LIBRARY))
    run(sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", "3.10", module, check=True)


@pytest.mark.parametrize(
    ("settings", "has_library"),
    [
        pytest.param({"CXX": ""}, True, id="empty"),
        pytest.param({"CXX": "env LANG=C c++"}, True, id="several words"),
        pytest.param({"CXX": "{folder}/without-openmp"}, True, id="without OpenMP"),
        pytest.param({"CXX": "false"}, False, id="compiles nothing"),
        pytest.param({"CXX": "no-such-compiler"}, False, id="missing"),
        pytest.param({"CXX": 'c++ "'}, False, id="not a command"),
        pytest.param({"ACCEL_NO_NATIVE": "1"}, False, id="none wanted"),
    ],
)
@pytest.mark.sample("compiles*", "missing", "not*", "empty", "none*")
def test_a_wheel_is_built_with_any_compiler(tree, tmp_path, settings, has_library):
    program = tmp_path / "without-openmp"
    program.write_text('#!/bin/sh\ncase " $* " in *" -fopenmp "*) exit 1;; esac\nexec c++ "$@"\n')
    program.chmod(0o755)
    given = {name: value.format(folder=tmp_path) for name, value in settings.items()}
    wheel = built(tree, tmp_path / "wheel", **given)
    assert (LIBRARY in contents(wheel)) == has_library
    assert wheel.name.endswith("-py3-none-any.whl") != has_library
    assert {"accel_ops/csrc/optimizers.cpp", "accel_ops/include/accel/optimizers.h"} <= {*contents(wheel)}
