# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A new file that replaces another one at once, when it is complete and on the device."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from types import TracebackType

from accel_host.io.transfer import synchronize_folder


class Replacement:
    """`with Replacement(path) as new:` write to `new.name`, then `new.replace()`. Otherwise nothing remains of it.

    The temporary file is locked, so that the one of a killed process is used again: killed processes leave one, unless
    several save to the path at once. Raises OSError, also for a path that is not a regular file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.realpath(path)
        self._former = _mode_of(self._path)
        self._replaced = False
        self.name, self._fd = self._claim()

    def replace(self) -> None:
        """Store the file on the device, then give it the name of the former one, and its mode; raises OSError."""
        if self._former is not None:
            os.fchmod(self._fd, self._former)
        os.fsync(self._fd)
        if not _is(self.name, self._fd):
            raise FileNotFoundError(
                errno.ENOENT, "removed by another process while it was written", self.name
            )
        os.replace(self.name, self._path)
        self._replaced = True
        synchronize_folder(os.path.dirname(self._path))

    def _claim(self) -> tuple[str, int]:
        folder, name = os.path.split(self._path)
        candidate, flags = os.path.join(folder, f".{name}.part"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        while True:
            fd = os.open(candidate, flags, 0o666)
            try:
                if flags & os.O_EXCL or _lock(fd):
                    # Another process may have renamed the file since it was opened: it would now be a finished one.
                    if _is(candidate, fd):
                        os.ftruncate(fd, 0)
                        return candidate, fd
                else:  # another process saves to the same path now
                    candidate = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.part")
                    flags |= os.O_EXCL
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def __enter__(self) -> Replacement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._replaced and _is(self.name, self._fd):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.name)
        finally:
            os.close(self._fd)


def _mode_of(path: str) -> int | None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file, which alone can be replaced", path)
    return stat.S_IMODE(mode)


def _lock(fd: int) -> bool:
    """Lock a file that is ours alone; False where that cannot be: in use, foreign, or a file system without locks."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        return False
