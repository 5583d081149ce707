# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the host kernels."""

from __future__ import annotations

import errno
import os
from functools import partial

from accel_core.errors import AccelError


class OutOfPinnedMemory(AccelError, MemoryError, code="ACC-506"):
    """The host has not enough memory for page-locked pages."""


class OverlappedStepFailed(AccelError, RuntimeError, code="ACC-508"):
    """The process that takes ZenFlow's overlapped steps has ended with an error."""


class TransferFailed(AccelError, OSError, code="ACC-509"):
    """A transfer between memory and a file has failed: `errno`, `filename`, the `offset` where, bytes `done` before."""

    def __init__(
        self,
        message: str,
        *,
        do: str,
        number: int = errno.EIO,
        name: str = "",
        offset: int = -1,
        done: int = 0,
    ) -> None:
        super().__init__(message, do=do)
        self.errno, self.strerror, self.filename = number, os.strerror(number), name
        self.offset, self.done = offset, done

    def __reduce__(self) -> tuple[object, ...]:
        facts = {"number": self.errno, "name": self.filename, "offset": self.offset, "done": self.done}
        return partial(TransferFailed, do=self.do, **facts), (self.message,)
