# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small library, a cache folder of the test's own, and compilers as machines have them."""

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_core.native import Source

#: A program that builds the library of the sources in a folder, and prints its path.
BUILD = """
import sys
from pathlib import Path
from accel_core.native import Source, build
print(build.library(Source("tiny", units=(Path(sys.argv[1]) / "answer.cpp",), folders=(Path(sys.argv[1]),))))
"""


def answer(path: Path) -> int:
    """What the library says; loads it."""
    return int(ctypes.CDLL(str(path)).answer())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Source:
    if shutil.which("c++") is None:
        pytest.fail("not run: package g++")
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "answer.h").write_text("#define ANSWER 42\n")
    (folder / "answer.cpp").write_text('#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n')
    return Source("tiny", units=(folder / "answer.cpp",), folders=(folder,))


@pytest.fixture
def compiler_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """`compiler_that("exit 1")` makes $CXX a shell script that does so before it calls the real compiler."""

    def put(first: str) -> Path:
        program = tmp_path / "bin" / "odd-c++"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\n{first}\nexec {shutil.which("c++")} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))
        return program

    return put
