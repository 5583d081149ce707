# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A library is built once, by compilers as machines have them, kept under a key of all it depends on, never damaged."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from users import BUILD, answer

from accel_core.errors import BuildFailed
from accel_core.native import Source, build, compiler


def test_the_second_call_compiles_nothing(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build.library(source)
    assert answer(first) == 42

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "compile_library", refuse)
    assert build.library(source) == first


def test_a_changed_header_or_flag_is_another_library(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {source.key(), Source(source.name, source.units, source.folders, ("-g",)).key()}
    (source.folders[0] / "answer.h").write_text("#define ANSWER 43\n")
    keys.add(source.key())
    monkeypatch.setattr("accel_core.native.compiler.FLAGS", ("-std=c++20", "-fPIC"))
    keys.add(source.key())
    assert len(keys) == 4


@pytest.mark.parametrize("damage", [b"", b"\x7fELF cut off", None], ids=["empty", "truncated", "one byte"])
def test_a_damaged_library_is_built_again(source: Source, cache: Path, damage: bytes | None) -> None:
    path = build.library(source)
    content = path.read_bytes() if damage is None else damage
    path.write_bytes(content if damage is not None else content[:-1] + bytes([content[-1] ^ 1]))
    assert answer(build.library(source)) == 42


def test_what_a_killed_builder_left_is_removed(source: Source, cache: Path) -> None:
    left = build.library(source).parent / "build-left"
    build.forget(build.library(source))
    left.mkdir()
    (left / "library").write_bytes(b"half")
    assert answer(build.library(source)) == 42
    assert not left.exists()


def test_two_installations_share_a_library(source: Source, tmp_path: Path) -> None:
    def installed(folder: str) -> Source:
        csrc = shutil.copytree(source.folders[0], tmp_path / folder)
        (csrc / "flags.txt").write_text("-O1\n")
        units = tuple(csrc / unit.name for unit in source.units)
        return Source(source.name, units, folders=(csrc,), flags=(f"@{csrc / 'flags.txt'}",))

    first, second = installed("one"), installed("other")
    assert first.key() == second.key()
    (second.folders[0] / "flags.txt").write_text("-O2\n")
    assert first.key() != second.key()


def test_two_machines_may_share_a_home(source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = build.library(source)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert build.library(source).parent != here.parent
    assert here.exists()


def test_a_compiler_error_is_quoted(source: Source, cache: Path) -> None:
    source.units[0].write_text("int answer( {\n")
    with pytest.raises(BuildFailed, match="ACC-403") as raised:
        build.library(source)
    assert "error" in raised.value.found
    assert not list(cache.rglob("build-*"))


def test_a_private_build_needs_no_cache_and_leaves_nothing(source: Source) -> None:
    with build.private(source) as path:
        assert answer(path) == 42
    assert not path.exists()


# --- compilers as machines have them: behind other programs, without OpenMP, with words in another alphabet


@pytest.mark.parametrize("number", [7, 8])
def test_every_word_of_cxx_is_obeyed(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    source.units[0].write_text('extern "C" int answer() { return GIVEN; }\n')
    monkeypatch.setenv("CXX", f"env LANG=C c++ -DGIVEN={number}")
    assert answer(build.library(source)) == number


def test_another_word_is_another_compiler_and_so_is_another_program(
    source: Source, cache: Path, compiler_that: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compiler_that("true")
    commands = [str(program), f"{program} -g", f"env {program}", f"env {program} -g"]
    found = []
    for command in commands:
        monkeypatch.setenv("CXX", command)
        found.append(compiler.identity(compiler.find()))
    os.utime(program, ns=(1, 1))
    for command in commands:
        monkeypatch.setenv("CXX", command)
        found.append(compiler.identity(compiler.find()))
    assert len(set(found)) == 8


def test_an_empty_cxx_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    usual = compiler.find()
    monkeypatch.setenv("CXX", " ")
    assert compiler.find() == usual


@pytest.mark.parametrize(
    "said",
    ["cannot find -lomp", "error: unsupported option '-fopenmp'", "fatal error: libgomp.spec: No such file"],
)
def test_whatever_a_compiler_without_openmp_says_the_library_is_built_without(
    source: Source, cache: Path, compiler_that: Callable[[str], Path], said: str
) -> None:
    compiler_that(f'case " $* " in *" -fopenmp "*) echo "{said}" >&2; exit 1;; esac')
    assert answer(build.library(source)) == 42


def test_the_first_errors_are_reported_when_it_fails_both_ways(
    source: Source, cache: Path, compiler_that: Callable[[str], Path]
) -> None:
    compiler_that(
        'case " $* " in *" -fopenmp "*) echo "error: first" >&2;; *) echo "error: second" >&2;; esac; exit 1'
    )
    with pytest.raises(BuildFailed, match="error: first"):
        build.library(source)


def test_words_that_are_no_utf_8_are_reported_as_well_as_can_be(
    source: Source, cache: Path, compiler_that: Callable[[str], Path]
) -> None:
    compiler_that(r"printf 'answer.cpp: error: gew\366hnlich\n' >&2; exit 1")
    with pytest.raises(BuildFailed, match="error: gew"):
        build.library(source)


# --- many builders at once, and builders killed at any moment: the next caller gets a whole library


def start(source: Source) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(source.folders[0])],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_sixteen_processes_at_once_get_one_library(source: Source, cache: Path) -> None:
    builders = [start(source) for _ in range(16)]
    paths = {builder.communicate()[0].strip() for builder in builders}
    assert [builder.returncode for builder in builders] == [0] * 16
    assert len(paths) == 1
    assert answer(Path(paths.pop())) == 42


@pytest.mark.parametrize("kills", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_builder_killed_at_any_moment_is_in_nobodys_way(source: Source, cache: Path, kills: int) -> None:
    draw = random.Random(kills)
    began = time.monotonic()
    start(source).communicate()
    whole = time.monotonic() - began
    for number in range(kills):
        # Another source each time, so that each builder has something to do.
        (source.folders[0] / "answer.h").write_text(f"#define ANSWER {number}\n")
        builder = start(source)
        time.sleep(draw.uniform(0.3, 1.1) * whole)
        os.killpg(builder.pid, signal.SIGKILL)
        builder.communicate()
        if draw.random() < 0.1 or number == kills - 1:
            assert answer(build.library(source)) == number
