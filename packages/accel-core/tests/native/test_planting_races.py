# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Attacks while a library is looked up, built and loaded, and on folders around it. Root runs this, as two users."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest
from users import ATTACKER, VICTIM, Scene, as_user, folder

from accel_core.errors import CacheUnusable
from accel_core.native import build, trust


def test_who_has_the_file_open_for_writing_changes_nothing(scene: Scene) -> None:
    """A descriptor outlives the permission by which it was opened."""
    path = as_user(VICTIM, lambda: build.library(scene.source))
    path.chmod(0o666)

    def attack_in_between(victims: str) -> int:
        os.pwrite(held, scene.evil, 0)
        os.ftruncate(held, len(scene.evil))
        return int(ctypes.CDLL(victims).answer())

    held = os.open(path, os.O_RDWR)
    path.chmod(0o755)
    try:
        assert as_user(VICTIM, lambda: build.load(path, attack_in_between)) == 42
        with pytest.raises(AssertionError, match="is damaged"):  # what he has written is seen the next time
            as_user(VICTIM, lambda: build.load(path, ctypes.CDLL))
        assert as_user(VICTIM, lambda: build.published(scene.source)) is None
    finally:
        os.close(held)


def test_a_folder_that_is_exchanged_all_the_time_is_never_loaded_from(scene: Scene) -> None:
    scene.load()
    parent = folder(scene.root / "shared", 0, 0o777)  # not sticky: the attacker may rename in it
    mine, evil = parent / "cache", parent / "evil"
    shutil.copytree(scene.cache, mine)
    for path in (mine, *mine.rglob("*")):
        os.chown(path, VICTIM, VICTIM)
    shutil.copytree(scene.cache, evil)
    shutil.rmtree(evil / scene.home.name)
    scene.plant(folder(evil / scene.home.name, ATTACKER, 0o755))
    attacker = os.fork()
    if attacker == 0:
        os.setuid(ATTACKER)
        while True:
            os.rename(mine, parent / "away")
            os.rename(evil, mine)
            os.rename(mine, evil)
            os.rename(parent / "away", mine)

    def attempts() -> set[str]:
        os.environ["ACCEL_CACHE_DIR"] = str(mine)
        seen = set()
        for _ in range(100):
            try:
                path = build.published(scene.source)
                seen.add("nothing" if path is None else str(build.load(path, ctypes.CDLL).answer()))
            except OSError:
                seen.add("refused")
        return seen

    try:
        assert "666" not in as_user(VICTIM, attempts)
    finally:
        os.kill(attacker, 9)
        os.waitpid(attacker, 0)


def test_a_planted_lock_empties_no_file(scene: Scene) -> None:
    precious = scene.root / "home" / "precious"
    precious.write_text("years of work")
    os.chown(precious, VICTIM, VICTIM)
    folder(scene.cache, VICTIM, 0o700)
    lock = folder(scene.home, VICTIM, 0o700) / ".lock"
    lock.symlink_to(precious)
    os.chown(lock, ATTACKER, ATTACKER, follow_symlinks=False)
    assert "[ACC-404]" in scene.load()
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_build_in_the_folder_for_temporary_files_cannot_be_exchanged(
    scene: Scene, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = folder(scene.root / "tmp", 0, mode)
    monkeypatch.setenv("TMPDIR", str(temporary))

    def where() -> tuple[Path, int]:
        with build.private(scene.source) as path:
            return path, int(ctypes.CDLL(str(path)).answer())

    path, answer = as_user(VICTIM, where)
    assert answer == 42
    assert path.is_relative_to(temporary) == (mode == 0o1777)


def test_the_compiler_keeps_its_own_files_private(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = folder(scene.root / "tmp", 0, 0o777)
    monkeypatch.setenv("TMPDIR", str(temporary))
    script = scene.root / "cxx"
    script.write_text(
        f'#!/bin/sh\necho "$TMPDIR" >> {scene.root}/marks/log\nexec {shutil.which("c++")} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    assert scene.load() == "42"
    folders = set((scene.root / "marks/log").read_text().split())
    assert all(Path(each).is_relative_to(scene.home) for each in folders), folders


@pytest.mark.parametrize("fault", ["file", "folder", "parent"])
def test_an_extension_of_torch_that_another_user_can_have_written_is_refused(
    scene: Scene, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch.utils.cpp_extension")
    parent = folder(scene.root / "extensions", VICTIM, 0o777 if fault == "parent" else 0o755)
    place = folder(parent / "cpu_adam", ATTACKER if fault == "folder" else VICTIM, 0o755)
    if fault == "file":
        scene.plant(place)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(parent))

    def check() -> str:
        try:
            trust.check_torch_extension("cpu_adam")
        except CacheUnusable as error:
            return error.found
        return "nothing"

    assert str(parent) in as_user(VICTIM, check)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(scene.root / "home" / "new"))
    assert as_user(VICTIM, check) == "nothing"
