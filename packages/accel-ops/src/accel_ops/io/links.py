# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Links on the way to a file that will be written: those that another user may have laid are not followed."""

from __future__ import annotations

import errno
import os

_MOST = 40


def followed(path: str) -> str:
    """Return the absolute path of the file, without links; raises PermissionError for a link of another user.

    The owner of the folder may lay links in it, as Linux has it for /tmp (fs.protected_symlinks); so may root.
    """
    for _ in range(_MOST):
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
