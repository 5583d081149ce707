# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A small library, a cache folder of the test's own, and compilers as machines have them."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accel_core.native import Source

sys.path.insert(0, str(Path(__file__).parent))
import users
from users import Scene


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
def scene(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A victim and an attacker: root's tests only. Fails if the attacker's code has run."""
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("not run: root (acts as two other users)")
    root = Path(tempfile.mkdtemp(prefix="planting-", dir="/tmp"))
    made = users.scene(source, root)
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(made.cache))
    yield made
    assert not made.mark.exists(), "the attacker's code has run"
    shutil.rmtree(root)
