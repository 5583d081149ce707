# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builds a library once and keeps it.

Built in a private folder, published by one rename under a name that contains the hash of its contents: a
builder that is killed, a full disk or a damaged file leaves nothing that a later process would load. The lock
only saves work; without it (some network file systems have none) two builders publish the same thing.

    <cache>/<name>-<key of sources, flags, machine>/<name>-<compiler>-<hash of the contents>.so

A machine with a compiler takes what that compiler made; one without takes what any has made of the same sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from accel_core.errors import BuildFailed, CacheUnusable
from accel_core.native import cache, compiler
from accel_core.native.source import Source

_WORK = "build-"
#: Without the lock: of these nobody knows whether their builder is at work.
_WORK_ALONE = "alone-"
#: A builder that was stopped, or whose disk hangs, keeps its lock. No library takes so long to build.
LOCK_SECONDS = 600.0
Compile = Callable[[Source, Path], None]


def library(source: Source, compile_library: Compile | None = None) -> Path:
    """Path of the built library, from the cache or built now; raises `BuildFailed` or `CacheUnusable`.

    compile_library: makes the file from the source; core's own if not given.
    """
    home, stem = _place(source)
    found = _published(home, stem)
    if found is not None:
        return found
    compile_library = compile_library or compiler.compile_library
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        with _locked(home) as locked:
            return _published(home, stem) or _build(source, home, stem, compile_library, locked)
    except OSError as error:
        raise CacheUnusable(
            what=f"{source.name} cannot be kept",
            found=f"{home}: {error.strerror or error}",
            expected="a cache folder with a few free megabytes",
            do="free some space there, or set ACCEL_CACHE_DIR",
        ) from error


def published(source: Source) -> Path | None:
    """Path of the library if the cache holds it; builds nothing. Raises `BuildFailed` or `CacheUnusable`."""
    return _published(*_place(source))


@contextlib.contextmanager
def private(source: Source) -> Iterator[Path]:
    """The library built in a temporary folder, for machines whose cache cannot be used."""
    with tempfile.TemporaryDirectory(prefix="accel-", ignore_cleanup_errors=True) as folder:
        target = Path(folder) / f"{source.name}.so"
        compiler.compile_library(source, target)
        yield target


def forget(path: Path) -> None:
    """Drop a published library that could not be loaded, so that the next call builds it anew."""
    with contextlib.suppress(OSError):
        path.unlink()


def _place(source: Source) -> tuple[Path, str]:
    """The library's folder, and how its file's name begins: with the compiler where there is one."""
    command = compiler.find()
    # One that can only be read serves those who find their library in it.
    home = cache.folder(write=False) / source.key()
    return home, f"{source.name}-{compiler.identity(command)}" if command else source.name


def _published(home: Path, stem: str) -> Path | None:
    """The library in its folder if its contents still have the hash of its name; a damaged one is removed."""
    try:
        candidates = sorted(home.glob(f"{stem}-*.so"))
    except OSError:
        return None
    for path in candidates:
        try:
            whole = path.stem.rpartition("-")[2] == _hash(path)
        except OSError:
            continue  # too many open files, a network disk: that says nothing about the library
        if whole:
            return path
        forget(path)
    return None


def _build(source: Source, home: Path, stem: str, compile_library: Compile, locked: bool) -> Path:
    if locked:
        # Whoever holds the lock is the only builder with it: what others left behind died with them.
        for left_behind in home.glob(f"{_WORK}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
    prefix = _WORK if locked else _WORK_ALONE
    with tempfile.TemporaryDirectory(prefix=prefix, dir=home, ignore_cleanup_errors=True) as work:
        built = Path(work) / "library"
        compile_library(source, built)
        if not built.stat().st_size:
            raise BuildFailed(
                what=f"{source.name} cannot be built",
                found="an empty file, without an error from the compiler",
                expected="a shared library",
                do="look for a full disk, or try another compiler (CXX=…)",
            )
        target = home / f"{stem}-{_hash(built)}.so"
        built.replace(target)
    return target


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[bool]:
    """Whether the lock is held: not where the file system has none, or its holder does not give it back."""
    try:
        lock = filelock.FileLock(home / ".lock", timeout=LOCK_SECONDS)
        lock.acquire()
    except (OSError, NotImplementedError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
