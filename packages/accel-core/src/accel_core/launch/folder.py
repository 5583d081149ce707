# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The launcher's temporary folder, and what launchers that were killed have left of theirs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "accel-launch-"
_LOCK = ".lock"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is removed at the end of the block; removes those of killed launchers of this user first."""
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        new = Path(name, f"{_LOCK}.new")
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Locked before it has the name that others look for; the kernel unlocks it when this process ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            new.rename(new.with_name(_LOCK))
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_abandoned() -> None:
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    """Remove a folder of this user whose lock nobody holds. One without a lock is being made."""
    if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    descriptor = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)  # follows no links
    finally:
        os.close(descriptor)
