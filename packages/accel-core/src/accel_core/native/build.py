# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builds a library once and keeps it.

Built in a private folder, published by one rename under a name that contains the hash of its contents: a
builder that is killed, a full disk or a damaged file leaves nothing that a later process would load. The lock
only saves work; without it (some network file systems have none) two builders publish the same thing.
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
Compile = Callable[[Source, Path], None]


def library(source: Source, compile_library: Compile | None = None) -> Path:
    """Path of the built library, from the cache or built now; raises `BuildFailed` or `CacheUnusable`.

    compile_library: makes the file from the source; core's own if not given.
    """
    path = compiler.find()
    home = cache.folder() / source.key("" if path is None else compiler.identity(path))
    found = _published(home)
    if found is not None:
        return found
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        with _locked(home):
            return _published(home) or _build(source, home, compile_library or compiler.compile_library)
    except OSError as error:
        raise CacheUnusable(
            what=f"{source.name} can not be kept",
            found=f"{home}: {error.strerror or error}",
            expected="a cache folder with a few free megabytes",
            do="free some space there, or set ACCEL_CACHE_DIR",
        ) from error


@contextlib.contextmanager
def private(source: Source) -> Iterator[Path]:
    """The library built in a temporary folder, for machines whose cache can not be used."""
    with tempfile.TemporaryDirectory(prefix="accel-", ignore_cleanup_errors=True) as folder:
        target = Path(folder) / f"{source.name}.so"
        compiler.compile_library(source, target)
        yield target


def forget(path: Path) -> None:
    """Drop a published library that could not be loaded, so that the next call builds it anew."""
    with contextlib.suppress(OSError):
        path.unlink()


def _published(home: Path) -> Path | None:
    """The library in its folder if its contents still have the hash of its name; anything else is removed."""
    try:
        candidates = sorted(home.glob("*.so"))
    except OSError:
        return None
    for path in candidates:
        with contextlib.suppress(OSError):
            if path.stem.rpartition("-")[2] == _hash(path):
                return path
        forget(path)
    return None


def _build(source: Source, home: Path, compile_library: Compile) -> Path:
    # Whoever holds the lock is the only builder: what others left behind died with them.
    for left_behind in home.glob(f"{_WORK}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=home, ignore_cleanup_errors=True) as work:
        built = Path(work) / "library"
        compile_library(source, built)
        if not built.stat().st_size:
            raise BuildFailed(
                what=f"{source.name} can not be built",
                found="an empty file, without an error from the compiler",
                expected="a shared library",
                do="look for a full disk, or try another compiler (CXX=…)",
            )
        target = home / f"{source.name}-{_hash(built)}.so"
        built.replace(target)
    return target


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    try:
        lock = filelock.FileLock(home / ".lock")
        lock.acquire()
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        lock.release()
