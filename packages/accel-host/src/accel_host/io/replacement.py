# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A new file that replaces another one at once, when it is complete and on the device."""

from __future__ import annotations

import fcntl
import os
import secrets
from types import TracebackType

from accel_host.io.transfer import synchronize_folder


class Replacement:
    """`with Replacement(path) as new:` write to `new.name`, then `new.replace()`. Otherwise nothing remains of it.

    The temporary file is locked, so that the one of a killed process is used again: killed processes leave at most one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.realpath(path)
        self._replaced = False
        self.name, self._fd = self._claim()

    def replace(self) -> None:
        """Store the file on the device, then give it the name of the former one; raises OSError."""
        os.fsync(self._fd)
        os.replace(self.name, self._path)
        self._replaced = True
        synchronize_folder(os.path.dirname(self._path))

    def _claim(self) -> tuple[str, int]:
        folder, name = os.path.split(self._path)
        candidate = os.path.join(folder, f".{name}.part")
        while True:
            fd = os.open(candidate, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have renamed the file since it was opened: it would now be a finished one.
                if _is(candidate, fd):
                    os.ftruncate(fd, 0)
                    return candidate, fd
            except BlockingIOError:  # another process saves to the same path now
                candidate = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.part")
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
            if not self._replaced:
                os.unlink(self.name)
        finally:
            os.close(self._fd)


def _is(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
