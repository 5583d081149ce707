# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Opens files for transfers, and follows links that may be followed.

Files are opened with O_DIRECT where the file has it, never truncated, new ones with mode 0600. Links on the way to a
file that will be written are not followed where another user may have laid them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import TypeAlias

from accel_ops.io import engines

Name: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes] | int"

_DIRECT = getattr(os, "O_DIRECT", 0)
#: Smaller requests never fill a block of a disk.
_SMALLEST_BLOCK = 512
_REFUSED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@dataclass
class OpenFile:
    """A descriptor of our own, and what direct I/O demands of requests on it. `name` is for messages."""

    name: str
    fd: int
    direct: bool = False
    memory_alignment: int = 0
    offset_alignment: int = 0

    def close(self) -> None:
        """Close the descriptor, once."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def open_file(name: Name, *, write: bool, size: int, native: bool) -> OpenFile:
    """Open a file by name, or take another descriptor of one that is open; raises OSError.

    size:   bytes of the request; small ones need no direct I/O.
    native: whether the library transfers, which alone has memory as direct I/O demands it.
    A descriptor that is passed stays the caller's. A link that another user may have laid is not written to.
    """
    direct = bool(_DIRECT) and size >= _SMALLEST_BLOCK and native
    if isinstance(name, int):
        file = _another(name, write)
    else:
        file = _by_name(name, write, direct)
    try:
        return _inspected(file, native)
    except BaseException:
        file.close()
        raise


def _by_name(
    name: str | bytes | os.PathLike[str] | os.PathLike[bytes], write: bool, direct: bool
) -> OpenFile:
    path = os.fspath(name)
    shown = os.fsdecode(path)
    with contextlib.suppress(FileNotFoundError):  # which open() reports, or makes the file
        # A pipe would block in open() until its other end is opened.
        _check_kind(os.stat(path).st_mode, shown)
    flags = os.O_WRONLY | os.O_CREAT if write else os.O_RDONLY
    if direct:
        try:
            return OpenFile(shown, _open(path, flags | _DIRECT), direct=True)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
    return OpenFile(shown, _open(path, flags))


def _open(path: str | bytes, flags: int) -> int:
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
    return os.open(followed(os.fsdecode(path)), flags | os.O_NOFOLLOW, 0o600)


def _another(fd: int, write: bool) -> OpenFile:
    """Return a descriptor of the same file, so that the caller may close his at any time."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    access = flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
    if access == (os.O_RDONLY if write else os.O_WRONLY):
        verb = "reading" if write else "writing"
        raise OSError(errno.EBADF, f"descriptor {fd} is open for {verb} only")
    path, shown = f"/proc/self/fd/{fd}", _name_of(fd)
    direct = bool(flags & _DIRECT)
    if flags & os.O_APPEND and write:
        # With O_APPEND, Linux writes at the end of the file, whatever the offset.
        return OpenFile(shown, os.open(path, os.O_WRONLY | (_DIRECT if direct else 0)), direct=direct)
    return OpenFile(shown, os.dup(fd), direct=direct)


def _name_of(fd: int) -> str:
    try:
        return f"{os.readlink(f'/proc/self/fd/{fd}')} (descriptor {fd})"
    except OSError:
        return f"descriptor {fd}"


def _inspected(file: OpenFile, native: bool) -> OpenFile:
    if native and file.direct:
        mode, file.memory_alignment, file.offset_alignment = engines.inspect(file.fd)
    else:
        mode = os.fstat(file.fd).st_mode
    _check_kind(mode, file.name)
    if file.direct and not file.offset_alignment:
        file.fd = _without_direct(file)
        file.direct = False
    return file


def _without_direct(file: OpenFile) -> int:
    """Replace the descriptor by one without O_DIRECT: flags of a duplicate would change the caller's."""
    flags = fcntl.fcntl(file.fd, fcntl.F_GETFL) & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
    fd = os.open(f"/proc/self/fd/{file.fd}", flags)
    os.close(file.fd)
    return fd


def _check_kind(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        raise OSError(errno.ESPIPE, "neither a regular file nor a block device", name)


_MOST_LINKS = 40


def followed(path: str) -> str:
    """Return the absolute path of the file, without links; raises PermissionError for a link of another user.

    The owner of the folder may lay links in it, as Linux has it for /tmp (fs.protected_symlinks); so may root.
    """
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        if name in ("", os.curdir, os.pardir):
            return os.path.realpath(path)
        if not os.path.islink(path):
            # What has this name from now on is not followed: only the folder's links are.
            return os.path.join(os.path.realpath(folder), name)
        found, target = os.lstat(path), os.readlink(path)
        if found.st_uid not in (os.geteuid(), 0, os.stat(folder or os.curdir).st_uid):
            raise PermissionError(errno.EPERM, "a link of another user, which is not followed", path)
        if _version(os.lstat(path)) != _version(found):
            raise PermissionError(errno.EPERM, "a link that somebody exchanges, which is not followed", path)
        path = os.path.join(folder, target)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, found.st_ctime_ns
