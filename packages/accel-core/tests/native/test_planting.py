# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Another user plants a library where the cache would find it, or attacks while it is built: it is never loaded."""

import ctypes
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from users import ATTACKER, VICTIM, Scene, folder

from accel_core.errors import CacheUnusable
from accel_core.native import build, trust
from shared.children import as_user


def test_the_attack_works_where_nothing_is_checked(scene: Scene) -> None:
    evil = scene.plant(scene.root)
    assert as_user(VICTIM, lambda: ctypes.CDLL(str(evil)).answer()) == 666
    assert scene.mark.exists()
    scene.mark.unlink()


def test_the_victim_s_own_cache_serves(scene: Scene) -> None:
    assert scene.load() == scene.load() == "42"


def _folder_of_another(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    folder(scene.home, ATTACKER, 0o755)
    scene.plant(scene.home)


def _folder_that_all_write(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o755)
    folder(scene.home, VICTIM, 0o777)
    scene.plant(scene.home)


def _folder_that_a_group_writes(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o755)
    folder(scene.home, VICTIM, 0o770)
    os.chown(scene.home, VICTIM, ATTACKER)
    scene.plant(scene.home)


def _folder_closed_after_the_planting(scene: Scene) -> None:
    _folder_that_all_write(scene)
    scene.home.chmod(0o700)


def _sticky_folder(scene: Scene) -> None:
    _folder_that_all_write(scene)
    scene.home.chmod(0o1777)


def _link_to_a_file(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    folder(scene.home, VICTIM, 0o700)
    evil = scene.plant(folder(scene.root / "attacker", ATTACKER, 0o755))
    link = scene.home / evil.name
    link.symlink_to(evil)
    os.chown(link, VICTIM, VICTIM, follow_symlinks=False)


def _link_to_a_folder(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    evil = scene.plant(folder(scene.root / "attacker", ATTACKER, 0o755))
    scene.home.symlink_to(evil.parent)


def _cache_in_a_sticky_folder_taken_first(scene: Scene) -> None:
    folder(scene.cache.parent, 0, 0o1777)
    folder(scene.cache, ATTACKER, 0o755)
    scene.plant(folder(scene.home, ATTACKER, 0o755))


def _link_in_a_sticky_folder(scene: Scene) -> None:
    folder(scene.cache.parent, 0, 0o1777)
    away = folder(scene.root / "attacker", ATTACKER, 0o755)
    scene.plant(folder(away / scene.home.name, ATTACKER, 0o755))
    scene.cache.symlink_to(away)
    os.chown(scene.cache, ATTACKER, ATTACKER, follow_symlinks=False)


def _parent_that_all_write(scene: Scene) -> None:
    folder(scene.cache.parent, VICTIM, 0o777)
    folder(scene.cache, ATTACKER, 0o755)
    scene.plant(folder(scene.home, ATTACKER, 0o755))


def _parent_of_another(scene: Scene) -> None:
    folder(scene.cache.parent, ATTACKER, 0o755)
    folder(scene.cache, VICTIM, 0o755)
    scene.plant(folder(scene.home, VICTIM, 0o755))


def _file_of_another(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    scene.plant(folder(scene.home, VICTIM, 0o700))


def _file_that_all_write(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    scene.plant(folder(scene.home, VICTIM, 0o700), VICTIM, 0o777)


def _hard_link(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    away = scene.plant(folder(scene.root / "attacker", ATTACKER, 0o755), VICTIM)
    os.link(away, folder(scene.home, VICTIM, 0o700) / away.name)


def _named_pipe(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    pipe = folder(scene.home, VICTIM, 0o700) / scene.name(scene.evil)
    os.mkfifo(pipe)
    os.chown(pipe, VICTIM, VICTIM)


ATTACKS = [
    _folder_of_another, _folder_that_all_write, _folder_that_a_group_writes, _folder_closed_after_the_planting,
    _sticky_folder, _link_to_a_file, _link_to_a_folder, _cache_in_a_sticky_folder_taken_first,
    _link_in_a_sticky_folder, _parent_that_all_write, _parent_of_another, _file_of_another, _file_that_all_write,
    _hard_link, _named_pipe,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.strip("_"))
@pytest.mark.parametrize("compiler_there", [True, False], ids=["with a compiler", "without one"])
def test_a_planted_library_is_refused_by_name(
    scene: Scene, attack: Callable[[Scene], None], compiler_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(scene)
    if not compiler_there:
        monkeypatch.setenv("PATH", "")
    said = scene.load()
    assert "[ACC-404]" in said, said
    assert str(scene.root) in said


@pytest.mark.parametrize("attack", [_file_of_another, _folder_of_another, _hard_link])
def test_root_loads_nothing_of_a_user_s(scene: Scene, attack: Callable[[Scene], None]) -> None:
    attack(scene)
    assert "[ACC-404]" in scene.load(user=0)


def test_a_cache_that_root_has_built_serves_every_user(scene: Scene) -> None:
    folder(scene.cache.parent, 0, 0o755)
    assert scene.load(user=0) == "42"
    for path in (scene.cache, scene.home):
        path.chmod(0o755)
    built = build.published(scene.source)
    assert scene.load() == "42"
    assert as_user(VICTIM, lambda: build.published(scene.source)) == built


def test_a_cache_of_another_account_serves_nobody_else(scene: Scene) -> None:
    folder(scene.cache.parent, ATTACKER, 0o755)
    assert scene.load(user=ATTACKER) == "42"
    for path in (scene.cache, scene.home):
        path.chmod(0o755)
    assert "belongs to user 54321" in scene.load()


@pytest.mark.parametrize("umask", [0, 0o002])
def test_a_careless_umask_opens_nothing(scene: Scene, umask: int) -> None:
    def build_it() -> list[int]:
        os.umask(umask)
        build.library(scene.source)
        return [path.stat().st_mode & 0o022 for path in scene.cache.rglob("*")]

    assert set(as_user(VICTIM, build_it)) == {0}
    assert scene.load() == "42"


# --- attacks while a library is looked up, built and loaded, and on folders around it. Root runs this, as two users


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
