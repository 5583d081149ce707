# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors: one sentence, what to do, and a code, whose paragraph in docs/errors.md `accel explain` prints.

The second base class is the exception type that code around DeepSpeed already catches (`ValueError`, …).
"""

from __future__ import annotations

import functools
import re
from typing import ClassVar

#: What packages raise, catch and format. Core's other errors are here, too, and are core's own.
__all__ = [
    "AccelError",
    "BuildFailed",
    "CacheUnusable",
    "FunctionNotImplemented",
    "InvalidCommand",
    "InvalidDevice",
    "InvalidEnvironment",
    "InvalidInput",
    "InvalidOpArgument",
    "LibraryMismatch",
    "NoAccelerator",
    "NotAnAccelerator",
    "OpNotImplemented",
    "UnsupportedBackend",
    "in_short",
    "DOCUMENTATION",
]

#: Where the pages of docs/ are, for messages: on an index a path of the repository leads nowhere.
DOCUMENTATION = "https://github.com/accel-project/accel/blob/main/docs"


class AccelError(Exception):
    """Base class of all errors of this project. A class gives its code as `class X(AccelError, code="ACC-…")`.

    message: what is wrong, in one sentence without a full stop, with the values that were found.
    do:      what to do, as a command where one helps.
    details: more lines, such as the state of every candidate.
    """

    code: ClassVar[str] = "ACC-000"

    def __init_subclass__(cls, code: str = "", **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        cls.code = code or cls.code

    def __init__(self, message: str, *, do: str, details: str = "") -> None:
        self.message, self.do, self.details = message, do, details
        super().__init__(str(self))
        if re.fullmatch(r"ACC-[1-9]\d\d", self.code):
            # Python 3.11 and later print notes below the text of an uncaught exception.
            self.__notes__ = [f"See: accel explain {self.code}"]

    def __str__(self) -> str:
        details = "".join(f"\n  {line}" for line in self.details.splitlines())
        return f"{self.message}; {self.do} [{self.code}]{details}"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled with their args, and ours have keywords. Launchers pickle errors.
        return functools.partial(type(self), do=self.do, details=self.details), (self.message,)


def in_short(error: BaseException) -> str:
    """Return the first line of an error's text, without code and advice; empty if the error has no text."""
    try:
        text = error.message if isinstance(error, AccelError) else str(error)
    except Exception:  # a runtime's own class
        return "an error whose text cannot be made"
    return text.strip().partition("\n")[0]


class InvalidVendor(AccelError, ImportError, ValueError, code="ACC-101"):
    """A fault of a vendor package: its entry point, its op table or its traits, or a second package for its key."""


class InterfaceMismatch(AccelError, ImportError, code="ACC-102"):
    """A vendor was built for another version of the interface."""


class InvalidEnvironment(AccelError, ValueError, RuntimeError, code="ACC-104"):
    """An environment variable has an invalid value, or one that a rank needs is missing."""


class InvalidCommand(AccelError, ImportError, code="ACC-105"):
    """A sub-command of `accel` cannot be loaded, lacks a required function, or needs a package that is missing."""


class UnknownAccelerator(AccelError, ValueError, code="ACC-201"):
    """DS_ACCELERATOR names an accelerator that does not exist."""


class AcceleratorUnavailable(AccelError, ValueError, code="ACC-202"):
    """The requested accelerator has no package or no runtime here."""


class AcceleratorBroken(AccelError, ValueError, code="ACC-203"):
    """The requested accelerator, or the one whose device is in this machine, fails."""


class AmbiguousAccelerator(AccelError, ValueError, code="ACC-204"):
    """Two accelerators of equal priority are both present."""


class StrictSelection(AccelError, RuntimeError, code="ACC-205"):
    """Under ACCEL_STRICT=1: the choice would fall back to the CPU, or a vendor is broken."""


class NotAnAccelerator(AccelError, AssertionError, TypeError, code="ACC-206"):
    """set_accelerator() was given something that is not an accelerator.

    Upstream raises AssertionError here; TypeError is the usual type for a wrong argument.
    """


class NoAccelerator(AccelError, RuntimeError, code="ACC-207"):
    """No accelerator can be used, not even the CPU."""


class TorchUnavailable(AccelError, ImportError, RuntimeError, code="ACC-208"):
    """torch is installed but cannot be imported, because of itself or of a backend extension."""


class UnsupportedUpstream(AccelError, RuntimeError, code="ACC-301"):
    """The installed DeepSpeed requires accelerator methods that this accel-core does not have."""


class UpstreamMissing(AccelError, ImportError, code="ACC-302"):
    """A call needs stock deepspeed, which is not installed."""


class NoBackendForCollectives(AccelError, RuntimeError, AssertionError, ValueError, code="ACC-303"):
    """torch.distributed has no device, or no backend for the accelerator. torch raises one of these types."""


class OpNotImplemented(AccelError, ValueError, NotImplementedError, code="ACC-401"):
    """The accelerator does not have the op that was loaded. Upstream raises ValueError here."""


class BuildFailed(AccelError, RuntimeError, code="ACC-403"):
    """A native library cannot be compiled here."""


class CacheUnusable(AccelError, OSError, code="ACC-404"):
    """The folder for built libraries is not writable, or not private to this user."""


class OpFailed(AccelError, RuntimeError, code="ACC-405"):
    """An op was loaded and computed a wrong result."""


class LibraryMismatch(AccelError, OSError, code="ACC-406"):
    """A native library and the Python code that loads it have different C interfaces."""


class UnsupportedBackend(AccelError, ValueError, code="ACC-501"):
    """The requested torch.compile backend is not registered."""


class FunctionNotImplemented(AccelError, AttributeError, code="ACC-502"):
    """An op or the device's runtime lacks a function. An AttributeError, so that `hasattr` is False."""


class InvalidOpArgument(AccelError, ValueError, TypeError, KeyError, code="ACC-504"):
    """An op was called with tensors, options or sizes that it cannot use. Upstream and torch raise one of these."""


class InvalidInput(AccelError, ValueError, code="ACC-701"):
    """A command was called with an argument, a file or a folder that it cannot use."""


class InvalidDevice(AccelError, RuntimeError, code="ACC-503"):
    """The process has no device with the given index."""
