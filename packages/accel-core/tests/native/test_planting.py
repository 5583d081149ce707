# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Another user plants a library where the cache would find it, or attacks while it is built: it is never loaded.

Root runs this, as two users. A user needs no account, only a number.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accel_core.errors import CacheUnusable
from accel_core.native import Source, build, compiler, trust
from shared.children import as_user

#: The one whose process loads a library, and the one who wants code of his own in it.
VICTIM, ATTACKER = 65534, 54321
#: Its constructor runs when it is loaded, before any of its functions is looked up.
_EVIL = """#include <fcntl.h>
__attribute__((constructor)) static void run() { open("MARK", O_CREAT | O_WRONLY, 0666); }
extern "C" int answer() { return 666; }
"""


def folder(path: Path, owner: int, mode: int) -> Path:
    """Make a folder of that user, with exactly these permissions."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


@dataclass(frozen=True)
class Scene:
    """A cache of the victim's, and what the attacker has at hand."""

    root: Path
    source: Source
    evil: bytes
    mark: Path

    @property
    def cache(self) -> Path:
        return self.root / "home" / "cache"

    @property
    def home(self) -> Path:
        """The folder of the library."""
        return self.cache / self.source.key()

    def name(self, content: bytes) -> str:
        """What a whole library with this content is called."""
        stem = f"{self.source.name}-{compiler.identity(compiler.find())}"
        return f"{stem}-{hashlib.sha256(content).hexdigest()[:32]}.so"

    @property
    def away(self) -> Path:
        """A folder of the attacker's."""
        return folder(self.root / "attacker", ATTACKER, 0o755)

    def private(self) -> Path:
        """Make the folder of the library as the victim does; return the path where a library is planted."""
        folder(self.cache, VICTIM, 0o700)
        return folder(self.home, VICTIM, 0o700) / self.name(self.evil)

    def plant(self, where: Path, owner: int = ATTACKER, mode: int = 0o755) -> Path:
        path = where / self.name(self.evil)
        path.write_bytes(self.evil)
        path.chmod(mode)
        os.chown(path, owner, owner)
        return path

    def load(self, user: int = VICTIM) -> str:
        """Let a user build and load, as a process of his does."""

        def attempt() -> str:
            try:
                path = build.library(self.source)
                return str(build.load(path, ctypes.CDLL).answer())
            except CacheUnusable as error:
                return str(error)

        return as_user(user, attempt)


@pytest.fixture
def scene(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """The folders of both, and the attacker's library: root's tests only. Fails if the attacker's code has run."""
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("not run: root (acts as two other users)")
    root = Path(tempfile.mkdtemp(prefix="planting-", dir="/tmp"))
    root.chmod(0o755)
    marks = folder(root / "marks", 0, 0o777)
    csrc = shutil.copytree(source.folders[0], root / "csrc")
    (root / "evil.cpp").write_text(_EVIL.replace("MARK", str(marks / "mark")))
    subprocess.run(["c++", "-shared", "-fPIC", "-o", root / "evil.so", root / "evil.cpp"], check=True)
    folder(root / "home", VICTIM, 0o755)
    own = Source(source.name, (csrc / "answer.cpp",), (csrc,))
    made = Scene(root, own, (root / "evil.so").read_bytes(), marks / "mark")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(made.cache))
    yield made
    assert not made.mark.exists(), "the attacker's code has run"
    shutil.rmtree(root)


def test_attack_works_without_checks(scene: Scene) -> None:
    evil = scene.plant(scene.root)
    assert as_user(VICTIM, lambda: ctypes.CDLL(str(evil)).answer()) == 666
    assert scene.mark.exists()
    scene.mark.unlink()


Mode = tuple[int, int]


def planting(
    parent: Mode | None = None,
    cache: Mode = (VICTIM, 0o755),
    home: Mode = (VICTIM, 0o700),
    file: Mode = (ATTACKER, 0o755),
) -> Callable[[Scene], None]:
    """Plant a library: owners and modes of it, of its folder, of the cache, and of the folder above that."""

    def attack(scene: Scene) -> None:
        if parent:
            folder(scene.cache.parent, *parent)
        folder(scene.cache, *cache)
        scene.plant(folder(scene.home, *home), *file)

    return attack


def own(path: Path, owner: int = VICTIM, group: int = VICTIM) -> None:
    os.chown(path, owner, group, follow_symlinks=False)


def folder_that_a_group_writes(scene: Scene) -> None:
    planting(home=(VICTIM, 0o770))(scene)
    own(scene.home, group=ATTACKER)


def link_to_a_file(scene: Scene) -> None:
    scene.private().symlink_to(scene.plant(scene.away))
    own(scene.private())


def link_to_a_folder(scene: Scene) -> None:
    folder(scene.cache, VICTIM, 0o700)
    scene.home.symlink_to(scene.plant(scene.away).parent)


def link_in_a_sticky_folder(scene: Scene) -> None:
    folder(scene.cache.parent, 0, 0o1777)
    scene.plant(folder(scene.away / scene.home.name, ATTACKER, 0o755))
    scene.cache.symlink_to(scene.away)
    own(scene.cache, ATTACKER)


def hard_link(scene: Scene) -> None:
    os.link(scene.plant(scene.away, VICTIM), scene.private())


def named_pipe(scene: Scene) -> None:
    os.mkfifo(scene.private())
    own(scene.private())


THEIRS = (ATTACKER, 0o755)
ATTACKS = {
    "folder of another": planting(home=THEIRS),
    "folder that all write": planting(home=(VICTIM, 0o777)),
    "folder that a group writes": folder_that_a_group_writes,
    "sticky folder": planting(home=(VICTIM, 0o1777)),
    "link to a file": link_to_a_file,
    "link to a folder": link_to_a_folder,
    "cache in a sticky folder, taken first": planting((0, 0o1777), THEIRS, THEIRS),
    "link in a sticky folder": link_in_a_sticky_folder,
    "parent that all write": planting((VICTIM, 0o777), THEIRS, THEIRS),
    "parent of another": planting(THEIRS, home=(VICTIM, 0o755)),
    "file of another": planting(),  # or its folder was open before
    "file that all write": planting(file=(VICTIM, 0o777)),
    "hard link": hard_link,
    "named pipe": named_pipe,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("compiler_there", [True, False], ids=["with a compiler", "without one"])
def test_a_planted_library_is_refused_by_name(
    scene: Scene, attack: Callable[[Scene], None], compiler_there: bool, monkeypatch: Any
) -> None:
    attack(scene)
    if not compiler_there:
        monkeypatch.setenv("PATH", "")
    said = scene.load()
    assert "[ACC-404]" in said, said
    assert str(scene.root) in said


@pytest.mark.parametrize("attack", ["file of another", "folder of another", "hard link"])
def test_root_loads_no_users_library(scene: Scene, attack: str) -> None:
    ATTACKS[attack](scene)
    assert "[ACC-404]" in scene.load(user=0)


@pytest.mark.parametrize("builder", [0, ATTACKER])
def test_only_roots_cache_serves_other_users(scene: Scene, builder: int) -> None:
    folder(scene.cache.parent, builder, 0o755)
    assert scene.load(user=builder) == "42"
    for path in (scene.cache, scene.home):
        path.chmod(0o755)
    if builder == ATTACKER:
        assert "belongs to user 54321" in scene.load()
    else:
        built = build.published(scene.source)
        assert scene.load() == "42"
        assert as_user(VICTIM, lambda: build.published(scene.source)) == built


@pytest.mark.parametrize("umask", [0, 0o002])
def test_umask_opens_nothing(scene: Scene, umask: int) -> None:
    def build_it() -> list[int]:
        os.umask(umask)
        build.library(scene.source)
        return [path.stat().st_mode & 0o022 for path in scene.cache.rglob("*")]

    assert set(as_user(VICTIM, build_it)) == {0}
    assert scene.load() == "42"


# --- attacks while a library is looked up, built and loaded, and on folders around it


def test_library_open_for_writing(scene: Scene) -> None:
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


def test_folder_exchanged_all_the_time(scene: Scene) -> None:
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


def test_planted_lock_empties_no_file(scene: Scene) -> None:
    precious = scene.root / "home" / "precious"
    precious.write_text("years of work")
    own(precious)
    lock = scene.private().with_name(".lock")
    lock.symlink_to(precious)
    own(lock, ATTACKER)
    assert "[ACC-404]" in scene.load()
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_private_build_avoids_open_folders(scene: Scene, mode: int, monkeypatch: Any) -> None:
    temporary = folder(scene.root / "tmp", 0, mode)
    monkeypatch.setenv("TMPDIR", str(temporary))

    def where() -> tuple[Path, int]:
        with build.private(scene.source) as path:
            return path, int(ctypes.CDLL(str(path)).answer())

    path, answer = as_user(VICTIM, where)
    assert answer == 42
    assert path.is_relative_to(temporary) == (mode == 0o1777)


def test_compilers_own_files_are_private(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = folder(scene.root / "tmp", 0, 0o777)
    monkeypatch.setenv("TMPDIR", str(temporary))
    script = scene.root / "cxx"
    log = scene.root / "marks/log"
    script.write_text(f'#!/bin/sh\necho "$TMPDIR" >> {log}\nexec {shutil.which("c++")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    assert scene.load() == "42"
    folders = set(log.read_text().split())
    assert all(Path(each).is_relative_to(scene.home) for each in folders), folders


@pytest.mark.parametrize("fault", ["file", "folder", "parent"])
def test_planted_extension_of_torch(scene: Scene, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch.utils.cpp_extension")
    parent = folder(scene.root / "extensions", VICTIM, 0o777 if fault == "parent" else 0o755)
    place = folder(parent / "cpu_adam", ATTACKER if fault == "folder" else VICTIM, 0o755)
    if fault == "file":
        scene.plant(place)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(parent))

    def check() -> str:
        try:
            trust.checked_torch_extension("cpu_adam")
        except CacheUnusable as error:
            return error.message
        return "nothing"

    assert str(parent) in as_user(VICTIM, check)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(scene.root / "home" / "new"))
    assert as_user(VICTIM, check) == "nothing"
