# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The folder for libraries that are compiled on this machine, which only this user can write.

Libraries in it are loaded with the user's rights, so a folder that other users can write is an error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from accel_core import env
from accel_core.errors import CacheUnusable


def default() -> Path:
    """Return ACCEL_CACHE_DIR, or `accel` in the platform's cache folder of the user; raises `CacheUnusable`."""
    if env.CACHE_DIR.get():
        return Path(env.CACHE_DIR.get())
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library/Caches/accel"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accel"
    except RuntimeError as error:  # a user without HOME and without an entry in passwd, as in containers
        raise _unusable(str(error)) from error


def folder(*, write: bool = True) -> Path:
    """Return the cache folder, created if missing; raises `CacheUnusable` if others can write it.

    write: also raise if this process cannot write it.
    """
    path = default()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.stat()
    except OSError as error:
        raise _unusable(f"{path}: {error.strerror or error}") from error
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            raise _unusable(f"{path} belongs to user {status.st_uid}, this is user {os.getuid()}")
        if status.st_mode & 0o022:
            raise _unusable(f"{path} can be written by others (mode {status.st_mode & 0o777:o})")
    if write and not os.access(path, os.W_OK | os.X_OK):
        raise _unusable(f"{path} cannot be written")
    return path


def _unusable(found: str) -> CacheUnusable:
    return CacheUnusable(
        what="the cache of built libraries cannot be used",
        found=found,
        expected="a folder of this user that nobody else can write",
        do=f"correct it, or set {env.CACHE_DIR.name} to a folder of your own",
    )
