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

from accel_ops.io import links
from accel_ops.io.transfer import synchronize_folder

#: O_NONBLOCK: a named pipe must not stop the process.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Replacement:
    """`with Replacement(path) as new:` write to `new.fd`, then `new.replace()`. Otherwise nothing remains of it.

    Until then only this user can read the file. It is locked, so that the one of a killed process is used again: killed
    processes leave one, unless several save to the path at once. Raises OSError, also for a path that is not a regular
    file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = links.followed(os.fspath(path))
        self._mode = _mode_at(self._path)
        self._replaced = False
        self.name, self.fd = self._claim()
        os.set_blocking(self.fd, True)

    def replace(self) -> None:
        """Store the file on the device, then give it the name of the former one, and its mode; raises OSError."""
        os.fchmod(self.fd, self._mode)
        os.fsync(self.fd)
        if not _is(self.name, self.fd):
            raise FileNotFoundError(
                errno.ENOENT, "removed by another process while it was written", self.name
            )
        os.replace(self.name, self._path)
        self._replaced = True
        synchronize_folder(os.path.dirname(self._path))

    def _claim(self) -> tuple[str, int]:
        folder, name = os.path.split(self._path)
        candidate = os.path.join(folder, f".{name}.part")
        while True:
            try:
                fd = os.open(candidate, _FLAGS, 0o600)
            except OSError:  # another user's, or a link, or a folder
                break
            try:
                if not _lock(fd):
                    os.close(fd)
                    break
                # Another process may have renamed the file since it was opened: it would now be a finished one.
                if _is(candidate, fd):
                    if not os.fstat(fd).st_mode & 0o077:
                        os.ftruncate(fd, 0)
                        return candidate, fd
                    os.unlink(candidate)  # others may have opened it
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        candidate = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.part")
        return candidate, os.open(candidate, _FLAGS | os.O_EXCL, 0o600)

    def __enter__(self) -> Replacement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._replaced and _is(self.name, self.fd):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.name)
        finally:
            os.close(self.fd)


def _mode_at(path: str) -> int:
    """Return the mode of a file that replaces what is there: no set-id bits; nothing that another owner permits."""
    usual = 0o666 & ~_umask()
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return usual
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file, which alone can be replaced", path)
    # With a second name it may be any file of this user, which another one has linked here.
    own = found.st_uid == os.geteuid() and found.st_nlink == 1
    return found.st_mode & (0o777 if own else usual)


def _umask() -> int:
    """Return the umask, if possible without setting it, which would concern files of other threads."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


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
