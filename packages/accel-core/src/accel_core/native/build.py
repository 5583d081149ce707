# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile a library once and keep it in the cache.

It is built in a private folder and published by a rename, under a name that contains the hash of its contents.
After a killed build, a full disk or damage to the file, no later process loads a wrong library. The lock only
avoids duplicate work; without it (as on some network file systems) two builds publish equal files.

    <cache>/<name>-<key of sources, flags, machine>/<name>-<compiler>-<hash of the contents>.so

A machine with a compiler uses the library of that compiler; one without uses that of any compiler.

Folders and files are checked whenever a library is looked up and whenever one is loaded (`trust`): those of another
user, or that others can write, raise `CacheUnusable`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import filelock

from accel_core.errors import BuildFailed, CacheUnusable
from accel_core.native import compiler, trust
from accel_core.native.compiler import Source

_WORK = "build-"
#: Prefix of folders of builds without the lock. They are not removed, as the build may still be running.
_WORK_ALONE = "alone-"
#: Limit of waiting for the lock, which a suspended build keeps. No library takes this long to build.
LOCK_SECONDS = 600.0
#: Seconds of waiting after which a warning says so.
PATIENCE_SECONDS = 5.0
_LOCK = ".lock"
Compile = Callable[[Source, Path], None]
Loaded = TypeVar("Loaded")
_log = logging.getLogger("accel_core")


def library(source: Source, compile_library: Compile | None = None) -> Path:
    """Return the path of the library, compiled if the cache lacks it; raises `BuildFailed` or `CacheUnusable`.

    compile_library: compiles the source into a file; default: `compiler.compile_library`.
    """
    home, stem = _place(source)
    found = _published(home, stem)
    if found is not None:
        return found
    compile_library = compile_library or compiler.compile_library
    try:
        with contextlib.suppress(FileNotFoundError):
            # Opening a link would empty what it leads to.
            trust.read(trust.checked(home, create=True) / _LOCK)
        with _locked(home) as locked:
            return _published(home, stem) or _build(source, home, stem, compile_library, locked)
    except CacheUnusable:
        raise
    except OSError as error:
        raise CacheUnusable(
            f"{source.name} cannot be kept: {home}: {error.strerror or error}",
            do="free some space there, or set ACCEL_CACHE_DIR",
        ) from error


def published(source: Source) -> Path | None:
    """Return the path of the library if the cache has it; compiles nothing. Raises as `library` does."""
    return _published(*_place(source))


def load(path: Path, loader: Callable[[str], Loaded]) -> Loaded:
    """Check a library of the cache again and load a copy of it from memory, so that nothing can change in between.

    path: what `library` or `published` returned.
    loader: loads a library from a path, which exists during the call only: `ctypes.CDLL`.

    Raises CacheUnusable for a library that another user can have changed, OSError for a damaged one.
    """
    content = trust.read(trust.checked(path.parent) / path.name)
    if not _is_whole(path.name, content):
        raise OSError(f"{path} is damaged")
    return trust.load_from_memory(content, path.name.partition("-")[0], loader)


@contextlib.contextmanager
def private(source: Source) -> Iterator[Path]:
    """Compile the library into a temporary folder, if the cache cannot be used; yields its path.

    Raises BuildFailed, and CacheUnusable where others can write the folder for temporary files.
    """
    with tempfile.TemporaryDirectory(
        prefix="accel-", dir=trust.temporary_folder(), ignore_cleanup_errors=True
    ) as folder:
        target = Path(folder) / f"{source.name}.so"
        compiler.compile_library(source, target)
        yield target


def forget(path: Path) -> None:
    """Delete a cached library that could not be loaded, so that the next call compiles it again."""
    with contextlib.suppress(OSError):
        path.unlink()


def _place(source: Source) -> tuple[Path, str]:
    """Return the library's folder, and the beginning of its file name, with the compiler if there is one."""
    command = compiler.find()
    # A read-only cache can be used if it has the library.
    home = trust.cache_folder(write=False) / source.key()
    return home, f"{source.name}-{compiler.identity(command)}" if command else source.name


def _published(home: Path, stem: str) -> Path | None:
    """Return the library whose contents match the hash in its name; a damaged one is removed.

    Raises CacheUnusable if another user can have written it.
    """
    try:
        folder = trust.checked(home)
        names = [name for name in os.listdir(folder) if name.startswith(f"{stem}-") and name.endswith(".so")]
    except CacheUnusable:
        raise
    except OSError:
        return None
    for name in sorted(names):
        try:
            whole = _is_whole(name, trust.read(folder / name))
        except CacheUnusable:
            raise
        except OSError:
            continue  # too many open files, a network disk: the library may be intact
        if whole:
            return home / name
        forget(home / name)
    return None


def _build(source: Source, home: Path, stem: str, compile_library: Compile, locked: bool) -> Path:
    if locked:
        # Only the holder of the lock builds, so these folders are left over from builds that were killed.
        for left_behind in home.glob(f"{_WORK}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
    prefix = _WORK if locked else _WORK_ALONE
    with tempfile.TemporaryDirectory(prefix=prefix, dir=home, ignore_cleanup_errors=True) as work:
        built = Path(work) / "library"
        compile_library(source, built)
        if not built.stat().st_size:
            raise BuildFailed(
                f"{source.name} cannot be built: an empty file, without an error from the compiler",
                do="look for a full disk, or try another compiler (CXX=…)",
            )
        built.chmod(0o755)  # the compiler obeys the umask, which may leave it open to others
        target = home / f"{stem}-{_hash(built.read_bytes())}.so"
        built.replace(target)
    return target


def _is_whole(name: str, content: bytes) -> bool:
    """Return whether the contents have the hash in the file's name."""
    return name.removesuffix(".so").rpartition("-")[2] == _hash(content)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[bool]:
    """Yield whether the lock was acquired: False without file locks, or if its holder does not release it."""
    try:
        lock = filelock.FileLock(home / _LOCK, timeout=LOCK_SECONDS, mode=0o600)
        _acquire(lock, home)
    except (OSError, NotImplementedError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _acquire(lock: filelock.BaseFileLock, home: Path) -> None:
    """Wait for the lock, with a warning after some seconds."""
    with contextlib.suppress(filelock.Timeout):
        lock.acquire(timeout=min(PATIENCE_SECONDS, LOCK_SECONDS))
        return
    _log.warning(
        "waiting for another process, which has locked %s to build a library; after %d s this process builds it "
        "alone. If that one hangs, end it, or set ACCEL_CACHE_DIR to another folder",
        home,
        LOCK_SECONDS,
    )
    lock.acquire()
