# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Another user plants a library where the cache would find it: it is never loaded. Root runs this, as two users."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pytest
from users import ATTACKER, VICTIM, Scene, as_user, folder

from accel_core.native import build


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
