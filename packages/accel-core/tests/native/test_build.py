# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A library is built once, under a key of all it depends on, never damaged, whatever compiler and cache are like."""

import ctypes
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import filelock
import pytest

from accel_core.errors import BuildFailed, CacheUnusable
from accel_core.native import Source, build, compiler, trust

from .conftest import BUILD, answer


def test_second_call_compiles_nothing(source: Source) -> None:
    first = build.library(source)
    assert answer(first) == 42
    assert build.library(source, lambda *_: pytest.fail("compiled again")) == first


def test_changed_header_or_flag(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {source.key(), Source(source.name, source.units, source.folders, ("-g",)).key()}
    (source.folders[0] / "answer.h").write_text("#define ANSWER 43\n")
    keys.add(source.key())
    monkeypatch.setattr("accel_core.native.compiler.FLAGS", ("-std=c++20", "-fPIC"))
    keys.add(source.key())
    assert len(keys) == 4


@pytest.mark.parametrize("damage", [b"", b"\x7fELF cut off", None], ids=["empty", "truncated", "one byte"])
def test_damaged_library_is_built_again(source: Source, damage: bytes | None) -> None:
    path = build.library(source)
    content = path.read_bytes() if damage is None else damage
    path.write_bytes(content if damage is not None else content[:-1] + bytes([content[-1] ^ 1]))
    assert answer(build.library(source)) == 42


def test_killed_build_is_removed(source: Source) -> None:
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


def test_private_build_leaves_nothing(source: Source) -> None:
    with build.private(source) as path:
        assert answer(path) == 42
    assert not path.exists()


# --- compilers as machines have them: behind other programs, without OpenMP, with words in another alphabet


@pytest.mark.parametrize("number", [7, 8])
def test_every_word_of_cxx_is_used(source: Source, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    source.units[0].write_text('extern "C" int answer() { return GIVEN; }\n')
    monkeypatch.setenv("CXX", f"env LANG=C c++ -DGIVEN={number}")
    assert answer(build.library(source)) == number


def test_identity_of_compiler(source: Source, compiler_that: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiler_that("true")
    found = []
    for changed in (False, True):
        if changed:
            os.utime(program, ns=(1, 1))
        for command in (str(program), f"{program} -g", f"env {program}", f"env {program} -g"):
            monkeypatch.setenv("CXX", command)
            found.append(compiler.identity(compiler.find()))
    assert len(set(found)) == 8


@pytest.mark.parametrize(
    "said",
    ["cannot find -lomp", "error: unsupported option '-fopenmp'", "fatal error: libgomp.spec: No such file"],
)
def test_compiler_without_openmp(source: Source, compiler_that: Any, said: str) -> None:
    compiler_that(f'case " $* " in *" -fopenmp "*) echo "{said}" >&2; exit 1;; esac')
    assert answer(build.library(source)) == 42


BOTH_WAYS = (
    'case " $* " in *" -fopenmp "*) echo "error: first" >&2;; *) echo "error: second" >&2;; esac; exit 1'
)
NOT_UTF_8 = r"printf 'answer.cpp: error: gew\366hnlich\n' >&2; exit 1"


@pytest.mark.parametrize(("fails", "reported"), [(BOTH_WAYS, "error: first"), (NOT_UTF_8, "error: gew")])
def test_first_errors_are_reported(
    source: Source, cache: Path, compiler_that: Any, fails: str, reported: str
) -> None:
    compiler_that(fails)
    with pytest.raises(BuildFailed, match=f"{reported}.*ACC-403"):
        build.library(source)
    assert not list(cache.rglob("build-*"))


# --- many builders at once, and builders killed at any moment: the next caller gets a whole library


def start(source: Source, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILD, str(source.folders[0])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **options)


def test_sixteen_processes_get_one_library(source: Source) -> None:
    builders = [start(source) for _ in range(16)]
    paths = {builder.communicate()[0].strip() for builder in builders}
    assert [builder.returncode for builder in builders] == [0] * 16
    assert len(paths) == 1
    assert answer(Path(paths.pop())) == 42


@pytest.mark.parametrize("kills", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_builder_killed_at_any_moment(source: Source, kills: int) -> None:
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


# --- a cache that several machines share, can only be read, lies on an odd file system, or has no place at all


def _obey_modes() -> None:
    # root may write where the mode forbids it (capability 1, CAP_DAC_OVERRIDE); dropped for what is executed next.
    if os.getuid() == 0:
        assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0  # PR_CAPBSET_DROP


def test_each_compiler_has_its_own_library(source: Source, compiler_that: Any) -> None:
    first = build.library(source)
    compiler_that("true")
    assert build.published(source) is None
    second = build.library(source)
    assert first != second
    assert first.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="drops a capability of root's, as Linux has them")
def test_read_only_cache(source: Source, cache: Path) -> None:
    made = build.library(source)
    options = {"preexec_fn": _obey_modes, "stderr": subprocess.PIPE}
    for folder in (made.parent, cache):
        folder.chmod(0o500)
    try:
        assert start(source, **options).communicate()[0].strip() == str(made)
        (source.folders[0] / "answer.h").write_text("#define ANSWER 43\n")
        assert "ACC-404" in start(source, **options).communicate()[1]
    finally:
        for folder in (cache, made.parent):
            folder.chmod(0o700)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
def test_unreadable_library_is_kept(source: Source, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    made = build.library(source)
    with monkeypatch.context() as patch:
        patch.setattr(trust, "read", Mock(side_effect=OSError(number, os.strerror(number))))
        assert build.published(source) is None
    assert build.published(source) == made


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [
        ("ACCEL_CACHE_DIR", "~/mine", "home/mine"),
        ("XDG_CACHE_HOME", "~/mine", "home/.cache/accel"),
        ("XDG_CACHE_HOME", "mine", "home/.cache/accel"),
        ("XDG_CACHE_HOME", "", "home/.cache/accel"),
    ],
)
def test_the_folder_does_not_depend_on_where_a_program_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, found: str
) -> None:
    for each in ("ACCEL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(variable, value)
    assert trust.default_cache() == tmp_path / found
    for name, relative in (("ACCEL_CACHE_DIR", "mine"), ("HOME", "home")):
        monkeypatch.setenv(name, relative)
        with pytest.raises(CacheUnusable, match="relative"):
            trust.default_cache()
        monkeypatch.delenv("ACCEL_CACHE_DIR", raising=False)


@pytest.mark.parametrize(
    "error", [NotImplementedError(), OSError(errno.ENOLCK, "No locks available")], ids=repr
)
def test_builders_without_locks(source: Source, monkeypatch: Any, error: Exception) -> None:
    all_at_work = threading.Barrier(4, timeout=60)

    def compile_library(source: Source, target: Path) -> None:
        all_at_work.wait()
        compiler.compile_library(source, target)

    monkeypatch.setattr(filelock, "FileLock", Mock(side_effect=error))
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: build.library(source, compile_library), range(4)))
    assert set(map(answer, paths)) == {42}


def test_stopped_builder_is_waited_for_briefly(source: Source, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(build, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(build, "LOCK_SECONDS", 0.2)
    made = build.library(source)
    build.forget(made)
    (made.parent / "build-stopped").mkdir()
    with filelock.FileLock(made.parent / ".lock", mode=0o600):
        assert build.library(source) == made
    (said,) = caplog.messages
    assert said.startswith(f"waiting for another process, which has locked {made.parent}")
    assert (made.parent / "build-stopped").exists()
