# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A cache that several machines share, can only be read, lies on an odd file system, or has no place at all."""

import ctypes
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import pytest
from users import BUILD, answer

from accel_core.errors import CacheUnusable
from accel_core.native import Source, build, compiler, trust


def _obey_modes() -> None:
    # root may write where the mode forbids it (capability 1, CAP_DAC_OVERRIDE); dropped for what is executed next.
    if os.getuid() == 0:
        assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0  # PR_CAPBSET_DROP


def test_each_compiler_has_its_own_library(
    source: Source, cache: Path, compiler_that: Callable[[str], Path]
) -> None:
    first = build.library(source)
    compiler_that("true")
    assert build.published(source) is None
    second = build.library(source)
    assert first != second
    assert first.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="drops a capability of root's, as Linux has them")
def test_a_cache_that_can_only_be_read_serves_what_it_holds(source: Source, cache: Path) -> None:
    made = build.library(source)

    def child() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", BUILD, str(source.folders[0])]
        return subprocess.run(command, preexec_fn=_obey_modes, capture_output=True, text=True, check=False)

    for folder in (made.parent, cache):
        folder.chmod(0o500)
    try:
        assert child().stdout.strip() == str(made), child().stderr
        (source.folders[0] / "answer.h").write_text("#define ANSWER 43\n")
        assert "ACC-404" in child().stderr
    finally:
        for folder in (cache, made.parent):
            folder.chmod(0o700)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
def test_a_library_that_can_not_be_read_now_is_not_removed(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    made = build.library(source)

    def fail(path: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(trust, "read", fail)
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
def test_builders_without_locks_leave_each_other_alone(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    all_at_work = threading.Barrier(4, timeout=60)

    def compile_library(source: Source, target: Path) -> None:
        all_at_work.wait()
        compiler.compile_library(source, target)

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(filelock, "FileLock", fail)
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: build.library(source, compile_library), range(4)))
    assert set(map(answer, paths)) == {42}


def test_a_builder_with_the_lock_leaves_one_without_alone(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(source: Source, target: Path) -> None:
        monkeypatch.undo()
        monkeypatch.setenv("ACCEL_CACHE_DIR", str(cache))
        build.library(source)
        assert target.parent.is_dir()
        compiler.compile_library(source, target)

    def fail(*_: object, **__: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(filelock, "FileLock", fail)
    assert build.library(source, meanwhile).is_file()


def test_a_builder_that_was_stopped_blocks_nobody_for_ever(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
