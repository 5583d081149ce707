# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The error of a transfer that has failed, with advice by its number."""

from __future__ import annotations

import errno
import os

from accel_ops.errors import TransferFailed
from accel_ops.io.requests import Result

_END_OF_FILE = getattr(errno, "ENODATA", errno.EIO)
_ADVICE = {
    errno.ENOSPC: "free space on the file system, or use another; what was written remains in the file",
    errno.EDQUOT: "raise the quota, or use another file system; what was written remains in the file",
    errno.EFBIG: "raise the limit of this process (ulimit -f), or write less to one file",
    errno.EIO: "the device or its file system failed: see the kernel's log (dmesg), and restore the file from a copy",
    errno.ECANCELED: "submit the transfer again, if it is still wanted",
    _END_OF_FILE: "read no more than the file has, or check whether its writer has finished",
    errno.EBADF: "keep the descriptor open, with the right to read or write, until the transfer is submitted",
}


def failed(name: str, write: bool, size: int, offset: int, result: Result) -> TransferFailed:
    """Return the error of a request that ended with an errno."""
    verb, preposition = ("written", "to") if write else ("read", "from")
    reason = os.strerror(result.error)
    if result.error == _END_OF_FILE and not write:
        reason = "the file ends"
    return TransferFailed(
        what=f"{size} bytes at offset {offset} cannot be {verb} {preposition} {name}",
        found=f"[Errno {result.error}] {reason} at offset {result.error_offset}, after {result.done} bytes",
        expected=f"all {size} bytes to be {verb}",
        do=_ADVICE.get(result.error, "see the description of the error's number in errno(3)"),
        number=result.error,
        name=name,
        offset=result.error_offset,
        done=result.done,
    )


def lost_by_fork(name: str, write: bool, size: int, offset: int) -> TransferFailed:
    """Return the error of a request that this process has inherited by fork()."""
    return TransferFailed(
        what=f"a transfer of {size} bytes {'to' if write else 'from'} {name} cannot be awaited here",
        found="it was started before fork(), by the parent process",
        expected="a transfer of this process",
        do="wait for transfers in the process that starts them",
        number=errno.ECANCELED,
        name=name,
        offset=offset,
    )


def differs(name: str, offset: int, size: int) -> TransferFailed:
    """Return the error of a validation that found other bytes in the file than in the tensor."""
    return TransferFailed(
        what=f"validation failed: {size} bytes at offset {offset} of {name} are not those of the tensor",
        found="a difference between the tensor and the file, read again through the page cache",
        expected="equal bytes",
        do="check that nothing else writes to the file or the tensor; otherwise the device is faulty",
        name=name,
        offset=offset,
    )
