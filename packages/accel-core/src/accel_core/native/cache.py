# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The folder for libraries that are compiled on this machine, which only this user can write.

Libraries in it are loaded with the user's rights, so a folder that other users can write is an error (`trust`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from accel_core import env
from accel_core.errors import CacheUnusable
from accel_core.native import trust


def default() -> Path:
    """Return ACCEL_CACHE_DIR, or `accel` in the platform's cache folder of the user; raises `CacheUnusable`.

    `~` is the home folder. A relative XDG_CACHE_HOME is ignored, as its specification has it.
    """
    try:
        path = Path(env.CACHE_DIR.get()).expanduser() if env.CACHE_DIR.get() else _of_the_platform()
    except RuntimeError as error:  # a user without HOME and without an entry in passwd, as in containers
        raise trust.unusable(str(error)) from error
    if not path.is_absolute():  # it would be another one in each folder where a program is started
        raise trust.unusable(f"{path} is a relative path")
    return path


def _of_the_platform() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/accel"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "accel"


def folder(*, write: bool = True) -> Path:
    """Return the cache folder, created if missing; raises `CacheUnusable` if others can write it.

    write: also raise if this process cannot write it.
    """
    path = default()
    _check_user()
    try:
        with trust.opened(path, create=True):
            pass
    except CacheUnusable:
        raise
    except OSError as error:
        raise trust.unusable(f"{path}: {error.strerror or error}") from error
    if write and not os.access(path, os.W_OK | os.X_OK):
        raise trust.unusable(f"{path} cannot be written")
    return path


def temporary() -> Path:
    """Return the folder for temporary files, which nobody else can move; raises `CacheUnusable` if there is none."""
    problems = []
    for path in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):
        try:
            with trust.opened(path, shared=True):
                return path
        except CacheUnusable as error:
            problems.append(error)
        except OSError as error:
            problems.append(trust.unusable(f"{path}: {error.strerror or error}"))
    raise problems[0]


def _check_user() -> None:
    if not hasattr(os, "geteuid"):
        raise trust.unusable(f"no users and owners of files on {sys.platform}")
    if os.getuid() != os.geteuid():  # the environment is that of another user
        raise trust.unusable(
            f"this process belongs to user {os.getuid()} and has the rights of user {os.geteuid()}"
        )
