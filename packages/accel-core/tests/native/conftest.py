# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small library, a cache folder of the test's own, and compilers as machines have them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_core.native import Source


@pytest.fixture
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


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and there is no compiler any more."""

    def remove() -> None:
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CXX", raising=False)

    return remove
