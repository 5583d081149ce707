# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The folder that is measured, and a file in it without a name: however the process ends, nothing is left."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from accel_ops.errors import UnsuitableFolder

#: Left free beside the file.
_RESERVE = 64 << 20
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def check(path: Path, size: int) -> None:
    """Raise UnsuitableFolder where no file of that size can be made."""
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise _unsuitable(path, found, "a folder", "name a folder on the disk that is to be measured")
    if not os.access(path, os.W_OK | os.X_OK):
        raise _unsuitable(
            path, "no right to write", "a folder to write to", "change its mode, or name another"
        )
    facts = os.statvfs(path)
    free = facts.f_bavail * facts.f_frsize
    if free < size + _RESERVE:
        found, wanted = f"{free >> 20} MiB free", f"{(size + _RESERVE) >> 20} MiB"
        raise _unsuitable(
            path, found, f"at least {wanted}", "free space there, or name a folder on another disk"
        )


def check_on_disk(path: Path) -> None:
    """Raise UnsuitableFolder for a file system in memory."""
    kind = file_system(path)
    if kind in _IN_MEMORY:
        raise _unsuitable(
            path,
            f"{kind}: its files are in memory",
            "a file system on a disk",
            "name a folder on the NVMe disk; offloading to memory is `device: cpu` in DeepSpeed's configuration",
        )


def file_system(path: Path) -> str:
    """Return the type of the file system; empty where the system does not tell."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError, IndexError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            if line.split()[2] == number:
                return line.partition(" - ")[2].split()[0]
    return ""


@contextlib.contextmanager
def scratch_file(path: Path) -> Iterator[int]:
    """Open a file in the folder that has no name, with O_DIRECT where the file system has it; raises OSError."""
    fd = _unnamed(path)
    try:
        direct = _direct(fd)
        if direct >= 0:
            os.close(fd)
            fd = direct
        yield fd
    finally:
        os.close(fd)


def _unnamed(path: Path) -> int:
    try:
        return os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
    except (OSError, AttributeError):  # a file system, or a system, without such files
        fd, name = tempfile.mkstemp(prefix=".accel-io-", dir=path)
        os.unlink(name)
        return fd


def _direct(fd: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_DIRECT)
    except (OSError, AttributeError):
        return -1


def _unsuitable(path: Path, found: str, expected: str, do: str) -> UnsuitableFolder:
    return UnsuitableFolder(
        what=f"file I/O cannot be measured in {path}", found=found, expected=expected, do=do
    )
