# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A library is built once, kept under a key of all it depends on, and never loaded damaged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from users import answer

from accel_core.errors import BuildFailed, CacheUnusable
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


def test_without_a_compiler_the_error_says_what_to_install(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildFailed, match="no C\\+\\+ compiler on PATH"):
        build.library(source)


def test_a_cache_that_others_can_write_is_refused(source: Source, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(CacheUnusable, match="can be written by others"):
        build.library(source)


def test_a_cache_of_another_user_is_refused(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with pytest.raises(CacheUnusable, match="belongs to user"):
        build.library(source)


def test_a_cache_that_can_not_be_made_is_an_error_of_ours(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheUnusable):
        build.library(source)


def test_a_private_build_needs_no_cache_and_leaves_nothing(source: Source) -> None:
    with build.private(source) as path:
        assert answer(path) == 42
    assert not path.exists()
