# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The folder for what is built on this machine: the user's own, readable by nobody else.

What is loaded from it runs with the user's rights, so a folder that another user could have written to is refused.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from accel_core import env
from accel_core.errors import CacheUnusable


def default() -> Path:
    """ACCEL_CACHE_DIR, or `accel` in the user's cache folder as the platform has it; raises `CacheUnusable`."""
    if env.CACHE_DIR.get():
        return Path(env.CACHE_DIR.get())
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library/Caches/accel"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accel"
    except RuntimeError as error:  # containers run as users without HOME and without an entry in passwd
        raise _unusable(str(error)) from error


def folder(*, write: bool = True) -> Path:
    """The cache folder, made if missing; raises `CacheUnusable` where it cannot be trusted.

    write: refuse one that cannot be written, too.
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
