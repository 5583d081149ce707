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
        if not os.path.islink(path):
            return os.path.realpath(path)
        folder = os.path.dirname(path) or os.curdir
        if os.lstat(path).st_uid not in (os.geteuid(), 0, os.stat(folder).st_uid):
            raise PermissionError(errno.EPERM, "a link of another user, which is not followed", path)
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
