# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the host kernels."""

from __future__ import annotations

import errno
import os
from typing import Any

from accel_core.errors import AccelError


class InvalidTensors(AccelError, ValueError, TypeError):
    """Tensors that a host kernel cannot work on. torch raises ValueError or TypeError in such cases."""

    code = "ACC-504"


class UnknownOptimizer(AccelError, ValueError, KeyError):
    """A step of an optimizer that was not created, or that was destroyed."""

    code = "ACC-505"


class OutOfPinnedMemory(AccelError, MemoryError):
    """The host has not enough memory for page-locked pages."""

    code = "ACC-506"


class InvalidOption(AccelError, ValueError, TypeError):
    """A step number, learning rate or other option of a step that is not a number. Upstream raises TypeError here."""

    code = "ACC-507"


class OverlappedStepFailed(AccelError, RuntimeError):
    """The process that takes ZenFlow's overlapped steps has ended with an error."""

    code = "ACC-508"


class TransferFailed(AccelError, OSError):
    """A transfer between memory and a file has failed: `errno`, `filename`, the `offset` where, bytes `done` before."""

    code = "ACC-509"

    def __init__(
        self,
        *,
        what: str,
        found: str,
        expected: str,
        do: str,
        number: int = errno.EIO,
        name: str = "",
        offset: int = -1,
        done: int = 0,
    ) -> None:
        super().__init__(what=what, found=found, expected=expected, do=do)
        self.errno, self.strerror, self.filename = number, os.strerror(number), name
        self.offset, self.done = offset, done

    def __reduce__(self) -> tuple[object, ...]:
        parts = {"what": self.what, "found": self.found, "expected": self.expected, "do": self.do}
        facts = {"number": self.errno, "name": self.filename, "offset": self.offset, "done": self.done}
        return _transfer_failed, (parts | facts,)


def _transfer_failed(arguments: dict[str, Any]) -> TransferFailed:
    return TransferFailed(**arguments)


class InvalidFile(AccelError, ValueError):
    """A file that does not have the layout of safetensors, or of a distributed checkpoint, or not all of it."""

    code = "ACC-511"


class UnsuitableFolder(AccelError, ValueError):
    """A folder in which file I/O cannot be measured: none, in memory, read-only, or with too little room."""

    code = "ACC-512"
