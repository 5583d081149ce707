# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The device is compiled once, whoever asks; what goes wrong is said in four parts and leaves nothing behind."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from accel_core.errors import CacheUnusable
from accel_testkit.sim import build
from accel_testkit.sim.errors import SimulatorBuildFailed

#: Writes what it was asked to make, and notes that it was called.
COMPILER = """#!/bin/sh
echo called >> "$LOG"
{first}
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of this test's own."""
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """`compiler("exit 1")` puts a pretended compiler in place; its log has a line for each call."""
    log, numbers = tmp_path / "log", itertools.count()

    def put(first: str = "") -> None:
        program = tmp_path / f"c++{next(numbers)}"  # the last one may still run
        program.write_text(COMPILER.format(first=first), encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))
        monkeypatch.setenv("LOG", str(log))

    put()
    return put


def _calls(tmp_path):
    return (tmp_path / "log").read_text(encoding="utf-8").count("called")


def _left(cache):
    return [path.name for path in cache.rglob("*") if path.is_file() and path.name != ".lock"]


def test_several_that_ask_at_once_compile_once(cache, compiler, tmp_path):
    compiler("sleep 0.1")
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda _: build.library(), range(4)))
    assert len(set(found)) == 1
    assert found[0].is_relative_to(cache)
    assert _calls(tmp_path) == len(build.UNITS) + 1


def test_every_word_of_the_compiler_counts(cache, compiler, monkeypatch):
    program, paths = os.environ["CXX"], set()
    for command in (program, f"{program} -m64", f"env {program}"):
        monkeypatch.setenv("CXX", command)
        paths.add(build.library())
    assert len(paths) == 3


def test_what_does_not_compile_says_why_and_is_tried_again(cache, compiler):
    compiler("echo 'unit.cpp:7: error: no such thing' >&2; exit 1")
    with pytest.raises(SimulatorBuildFailed, match=r"found: +unit.cpp:7: error: no such thing"):
        build.library()
    assert _left(cache) == []
    compiler()
    assert build.library().is_file()


def test_builder_that_is_killed_blocks_nobody(cache, compiler, tmp_path):
    compiler("kill -9 $PPID; exit 1")
    program = "from accel_testkit.sim import build; build.library()"
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=300)
    assert killed.returncode == -9, killed.stderr
    compiler()
    assert build.library().read_text(encoding="utf-8") == "made\n"


def test_machine_without_a_compiler_is_told_what_to_install(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    command = [sys.executable, "-m", "accel_core.cli", "sim", "npu", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    what, *parts = done.stderr.splitlines()
    assert what == "[ACC-703] the simulated device can not be built"
    assert [part.split(":")[0].strip() for part in parts] == ["found", "expected", "do"]
    assert "no C++ compiler 'c++' on PATH" in parts[0]
    assert "apt install g++" in parts[2]


def test_compiler_that_was_asked_for_and_is_not_there_is_named(cache, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(SimulatorBuildFailed, match="no-such-compiler"):
        build.library()


def test_cache_of_another_user_is_refused(cache, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(CacheUnusable, match="belongs to user"):
        build.library()
