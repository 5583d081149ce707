# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The launcher's temporary folder, and what launchers that were killed have left of theirs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from accel_core.launch.engine_errors import LogUnwritable

PREFIX = "accel-launch-"
_LOCK = ".lock"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is removed at the end of the block; removes those of killed launchers of this user first."""
    place = _place()
    _remove_abandoned(place)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=place) as name:
        new = Path(name, f"{_LOCK}.new")
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Locked before it has the name that others look for; the kernel unlocks it when this process ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            new.rename(new.with_name(_LOCK))
            yield Path(name)
        finally:
            os.close(descriptor)


def _place() -> str:
    """Return the folder for temporary files, or another in which nobody else can replace ours; raises LogUnwritable."""
    own = tempfile.gettempdir()
    for folder in (own, os.environ.get("XDG_RUNTIME_DIR") or own, "/tmp", "/var/tmp"):
        with contextlib.suppress(OSError):
            found = os.stat(folder)
            others_write = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
            if (
                found.st_uid in (0, os.geteuid())
                and not others_write
                and os.access(folder, os.W_OK | os.X_OK)
            ):
                return folder
    raise LogUnwritable(
        what="there is no folder for temporary files that is safe from other users",
        found=f"{own}: others can write to it, and it has no sticky bit, or belongs to another user",
        expected="a folder of yours, or one with the sticky bit",
        do="set TMPDIR to a folder of yours",
    )


def _remove_abandoned(place: str) -> None:
    with contextlib.suppress(OSError), os.scandir(place) as entries:
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
