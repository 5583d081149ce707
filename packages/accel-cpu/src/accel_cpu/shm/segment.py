# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The memory that the ranks of a group share: an anonymous file of one user, whose size nobody can change.

It has no name that another user could create first, and nothing remains of it when its processes end.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat

NONCE_BITS = 256
#: The number is raised with every change of csrc's requests or of the segment's layout.
_MARK = b"accel_shm 6\n"
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW


def create(size: int) -> tuple[int, int]:
    """Return the descriptor of a new segment and its nonce; raises OSError."""
    import fcntl  # not on Windows

    nonce = secrets.randbits(NONCE_BITS)
    fd = os.memfd_create("accel_shm_segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)  # memory that is missing later would be a SIGBUS
        os.pwrite(fd, _marked(nonce), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd, nonce


def open_of(pid: int, number: int) -> int:
    """Open what a process has open under a number: the segment has no name. Raises OSError for anything else."""
    # O_PATH does nothing to the file: only a file without a name, of this user, is then opened to be written.
    place = os.open(f"/proc/{pid}/fd/{number}", os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "not anonymous memory of this user")
        return os.open(f"/proc/self/fd/{place}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(place)


def checked_size(fd: int, nonce: int) -> int:
    """Return the bytes of the segment that this user created with this nonce; raises PermissionError for others."""
    import fcntl

    found = os.fstat(fd)
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # only a memfd can have them
        seals = 0
    # A file whose size may change could make this process fail with SIGBUS.
    trusted = found.st_uid == os.geteuid() and seals & _SEALS == _SEALS
    if not trusted or os.pread(fd, len(_marked(nonce)), 0) != _marked(nonce):
        raise PermissionError(errno.EPERM, "not a segment that this user created for the group")
    return found.st_size


def _marked(nonce: int) -> bytes:
    return _MARK + nonce.to_bytes(NONCE_BITS // 8, "big")
