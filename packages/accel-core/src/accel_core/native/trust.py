# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Who may have written what this process loads: this user and root, nobody else.

A path is followed folder by folder. Each folder and link on the way must belong to this user or root, and be writable
by nobody else; in a sticky folder others may make entries, not replace them. So nobody else can exchange what has been
checked. A file is read through the descriptor that was checked, and the dynamic loader gets a copy of it in memory.

Here are also the folders that this applies to: the cache of libraries built on this machine, the folder for temporary
files, and that of torch's extensions.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from accel_core import env
from accel_core.errors import CacheUnusable

#: O_NONBLOCK: a named pipe must not stop the process.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_MOST_LINKS = 40


def checked(path: Path, *, create: bool = False, shared: bool = False) -> Path:
    """Return the path without links of a folder that only this user and root can have changed.

    create: make missing folders, each with mode 0700.
    shared: others may write the folder itself if it is sticky, as /tmp is.

    Raises CacheUnusable if another user owns or can write a folder or link on the way; OSError if it is not a folder.
    """
    place, left, links = Path("/"), _parts(str(path.absolute())), 0
    while left:
        _check(place.lstat(), place, sticky=True)
        name = left.pop()
        below = place.parent if name == ".." else place / name
        try:
            status = below.lstat()
        except FileNotFoundError:
            if not create:
                raise
            with contextlib.suppress(FileExistsError):  # another process was first
                below.mkdir(0o700)
            status = below.lstat()
        if not stat.S_ISLNK(status.st_mode):
            place = below
            continue
        _check_owner(status, below)
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = os.readlink(below)
        left += _parts(target)
        if target.startswith("/"):
            place = Path("/")
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    _check(status, place, sticky=shared, remove=not shared)
    return place


def _parts(path: str) -> list[str]:
    """Return the names of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def read(path: Path) -> bytes:
    """Return the contents of a file in a folder that `checked` has returned.

    Raises CacheUnusable for a link, a second hard link, and a file that another user owns or can write; else OSError.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise unusable(f"{path} is a link", remove=path) from None
        raise
    with open(descriptor, "rb") as file:
        _check_file(os.fstat(descriptor), path)
        return file.read()


def check_tree(path: Path) -> None:
    """Raise CacheUnusable if another user can have changed the folder or anything in it; OSError if it is not there.

    In a folder that others cannot enter (mode 0700) the write bits of files have no effect, and are not checked.
    """
    private = not checked(path).stat().st_mode & 0o077
    for root, folders, files in os.walk(path):
        for name in (*folders, *files):
            inside = Path(root, name)
            status = inside.lstat()
            if not stat.S_ISDIR(status.st_mode):
                _check_file(status, inside, sealed=private)
            elif private:
                _check_owner(status, inside, remove=True)
            else:
                _check(status, inside, remove=True)


def unusable(found: str, *, remove: Path | None = None) -> CacheUnusable:
    """Return the error. remove: what to delete, as another user may have written it."""
    advice = f"delete {remove}, which another user may have changed" if remove else "correct that"
    return CacheUnusable(
        f"the cache of built libraries cannot be used: {found}; expected folders and files of this "
        "user or root that nobody else can write, up to the root folder",
        do=f"{advice}; or set {env.CACHE_DIR.name} to a folder of your own",
    )


def _check(status: os.stat_result, path: Path, *, sticky: bool = False, remove: bool = False) -> None:
    """Check owner and write bits.

    sticky: others may write where only the owner of an entry, or of the folder, can replace it.
    remove: the advice is to delete it.
    """
    _check_owner(status, path, remove=remove)
    if status.st_mode & 0o022 and not (sticky and status.st_mode & stat.S_ISVTX):
        found = f"{path} can be written by others (mode {status.st_mode & 0o7777:o})"
        raise unusable(found, remove=path if remove else None)


def _check_owner(status: os.stat_result, path: Path, *, remove: bool = False) -> None:
    user = os.geteuid()
    if status.st_uid not in (user, 0):
        found = f"{path} belongs to user {status.st_uid}, this is user {user}"
        raise unusable(found, remove=path if remove else None)


def _check_file(status: os.stat_result, path: Path, *, sealed: bool = False) -> None:
    """Check a file. sealed: others cannot reach it, whatever its write bits."""
    if not stat.S_ISREG(status.st_mode):
        raise unusable(f"{path} is not a regular file", remove=path)
    _check_owner(status, path, remove=True)
    if not sealed:
        _check(status, path, remove=True)
    if status.st_nlink > 1:  # under its other name it may be where others can write
        raise unusable(f"{path} has {status.st_nlink} names (hard links)", remove=path)


def default_cache() -> Path:
    """Return ACCEL_CACHE_DIR, or `accel` in the platform's cache folder of the user; raises `CacheUnusable`.

    `~` is the home folder. A relative XDG_CACHE_HOME is ignored, as its specification has it.
    """
    try:
        path = Path(env.CACHE_DIR.get()).expanduser() if env.CACHE_DIR.get() else platform_cache("accel")
    except RuntimeError as error:  # a user without HOME and without an entry in passwd, as in containers
        raise unusable(str(error)) from error
    if not path.is_absolute():  # it would be another one in each folder where a program is started
        raise unusable(f"{path} is a relative path")
    return path


def platform_cache(name: str) -> Path:
    """Return the folder of a program in the user's cache."""
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches" / name
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / name


def cache_folder(*, write: bool = True) -> Path:
    """Return the cache folder, created if missing; raises `CacheUnusable` if others can write it.

    write: also raise if this process cannot write it.
    """
    path = default_cache()
    _check_user()
    try:
        checked(path, create=True)
    except CacheUnusable:
        raise
    except OSError as error:
        raise unusable(f"{path}: {error.strerror or error}") from error
    if write and not os.access(path, os.W_OK | os.X_OK):
        raise unusable(f"{path} cannot be written")
    return path


def temporary_folder() -> Path:
    """Return the folder for temporary files, which nobody else can move; raises `CacheUnusable` if there is none."""
    problems = []
    for path in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):
        try:
            checked(path, shared=True)
            return path
        except CacheUnusable as error:
            problems.append(error)
        except OSError as error:
            problems.append(unusable(f"{path}: {error.strerror or error}"))
    raise problems[0]


def _check_user() -> None:
    if not hasattr(os, "geteuid"):
        raise unusable(f"no users and owners of files on {sys.platform}")
    if os.getuid() != os.geteuid():  # the environment is that of another user
        raise unusable(
            f"this process belongs to user {os.getuid()} and has the rights of user {os.geteuid()}"
        )


Loaded = TypeVar("Loaded")
_DESCRIPTORS = Path("/proc/self/fd")
_number = itertools.count()


def load_from_memory(content: bytes, name: str, loader: Callable[[str], Loaded]) -> Loaded:
    """Return what `loader` makes of the path of a file with this content; the file is gone afterwards.

    loader: maps the file, as ctypes.CDLL does.
    """
    with contextlib.ExitStack() as stack:
        path = _in_memory(content, name, stack) or _in_private_folder(content, name, stack)
        return loader(path)


def _in_memory(content: bytes, name: str, stack: contextlib.ExitStack) -> str | None:
    """Return the path of a file without a name, None where the system has none or maps no code from it."""
    if not hasattr(os, "memfd_create") or not _DESCRIPTORS.is_dir():
        return None
    try:
        file = stack.enter_context(os.fdopen(os.memfd_create(name), "wb"))
        file.write(content)
        file.flush()
        mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError:
        return None
    # The loader returns the earlier library for a path that it knows, and numbers of descriptors are used again.
    return f"{_DESCRIPTORS}/{'./' * next(_number)}{file.fileno()}"


def _in_private_folder(content: bytes, name: str, stack: contextlib.ExitStack) -> str:
    folder = tempfile.TemporaryDirectory(prefix="accel-", dir=temporary_folder(), ignore_cleanup_errors=True)
    path = Path(stack.enter_context(folder)) / f"{name}.so"
    path.write_bytes(content)
    return str(path)


def checked_torch_extension(name: str) -> Path:
    """Return the folder of an extension, made if missing; raise CacheUnusable if another user can have written it."""
    try:
        path = _torch_folder(name)
        check_tree(path)
        return path
    except CacheUnusable as error:
        raise CacheUnusable(
            f"torch's extension {name} is not loaded: {error.message.partition(': ')[2]}",
            do=(
                f"delete {path} and take write permission on the folders above from others (chmod go-w), "
                "or set TORCH_EXTENSIONS_DIR to a folder of your own"
            ),
        ) from None
    except OSError as error:
        raise CacheUnusable(
            f"torch's extension {name} cannot be kept: {error.filename or name}: {error.strerror or error}",
            do="set TORCH_EXTENSIONS_DIR to a folder of your own",
        ) from error


def _torch_folder(name: str) -> Path:
    """Return torch's build folder. torch makes it with the permissions of the umask, here with none for others."""
    from torch.utils import cpp_extension

    before = os.umask(0o077)
    try:
        return Path(cpp_extension._get_build_directory(name, verbose=False))
    finally:
        os.umask(before)
