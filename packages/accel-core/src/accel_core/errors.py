# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors in four parts: what failed, what was found, what was expected, what to do.

Each has a code, with a paragraph in docs/errors.md. The second base class is the exception type that code around
DeepSpeed already catches (`ValueError`, `ImportError`, `RuntimeError`, …).
"""

from __future__ import annotations

import re
from typing import ClassVar

#: What packages raise, catch and format. Core's other errors are here, too, and are core's own.
__all__ = [
    "AccelError",
    "BuildFailed",
    "CacheUnusable",
    "FunctionNotImplemented",
    "InvalidDevice",
    "InvalidEnvironment",
    "InvalidOpArgument",
    "LibraryMismatch",
    "NotAnAccelerator",
    "OpNotImplemented",
    "UnsupportedBackend",
    "in_short",
    "DOCUMENTATION",
]

#: Where the pages of docs/ are, for messages: on an index a path of the repository leads nowhere.
DOCUMENTATION = "https://github.com/accel-project/accel/blob/main/docs"


class AccelError(Exception):
    """Base class of all errors of this project."""

    code: ClassVar[str] = "ACC-000"

    def __init__(self, *, what: str, found: str, expected: str, do: str) -> None:
        self.what, self.found, self.expected, self.do = what, found, expected, do
        super().__init__(str(self))
        if re.fullmatch(r"ACC-[1-9]\d\d", self.code):
            # Python 3.11 and later print notes below the text of an uncaught exception.
            self.__notes__ = [f"  see:      {self.address()}"]

    @classmethod
    def address(cls) -> str:
        """Return the address of the paragraph about the code."""
        return f"{DOCUMENTATION}/errors.md#{cls.code.lower()}"

    def __str__(self) -> str:
        return four_parts(f"[{self.code}] {self.what}", found=self.found, expected=self.expected, do=self.do)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled with their args, and ours are keyword-only. Launchers pickle errors.
        return _rebuild, (type(self), self.what, self.found, self.expected, self.do)


def four_parts(what: str, *, found: str, expected: str, do: str) -> str:
    """Format an error's text. Each part may have several lines."""
    return (
        f"{what}\n"
        f"  found:    {_indented(found)}\n"
        f"  expected: {_indented(expected)}\n"
        f"  do:       {_indented(do)}"
    )


def in_short(error: BaseException) -> str:
    """Return the first line of an error's text, without code and advice; empty if the error has no text."""
    text = f"{error.what}: {error.found}" if isinstance(error, AccelError) else str(error)
    return text.strip().partition("\n")[0]


def _indented(text: str) -> str:
    return text.replace("\n", "\n            ")


def _rebuild(cls: type[AccelError], what: str, found: str, expected: str, do: str) -> AccelError:
    return cls(what=what, found=found, expected=expected, do=do)


class InvalidVendor(AccelError, ImportError):
    """A vendor entry point cannot be loaded or is not a vendor."""

    code = "ACC-101"


class InterfaceMismatch(AccelError, ImportError):
    """A vendor was built for another version of the interface."""

    code = "ACC-102"


class DuplicateVendor(AccelError, ImportError):
    """Two packages claim the same accelerator key."""

    code = "ACC-103"


class InvalidEnvironment(AccelError, ValueError):
    """An environment variable of this project has an invalid value."""

    code = "ACC-104"


class InvalidCommand(AccelError, ImportError):
    """A sub-command that a package adds to `accel` cannot be loaded, or lacks a required function."""

    code = "ACC-105"


class InvalidTraits(AccelError, ValueError):
    """A vendor's traits name a feature or an op that does not exist."""

    code = "ACC-106"


class UnknownAccelerator(AccelError, ValueError):
    """DS_ACCELERATOR names an accelerator that does not exist."""

    code = "ACC-201"


class AcceleratorUnavailable(AccelError, ValueError):
    """The requested accelerator has no package or no runtime here."""

    code = "ACC-202"


class AcceleratorBroken(AccelError, ValueError):
    """The requested accelerator, or the one whose device is in this machine, fails."""

    code = "ACC-203"


class AmbiguousAccelerator(AccelError, ValueError):
    """Two accelerators of equal priority are both present."""

    code = "ACC-204"


class StrictSelection(AccelError, RuntimeError):
    """Under ACCEL_STRICT=1: the choice would fall back to the CPU, or a vendor is broken."""

    code = "ACC-205"


class NotAnAccelerator(AccelError, AssertionError, TypeError):
    """set_accelerator() was given something that is not an accelerator.

    Upstream raises AssertionError here; TypeError is the usual type for a wrong argument.
    """

    code = "ACC-206"


class NoAccelerator(AccelError, RuntimeError):
    """No accelerator can be used, not even the CPU."""

    code = "ACC-207"


class TorchUnavailable(AccelError, ImportError, RuntimeError):
    """torch is installed but cannot be imported, because of itself or of a backend extension."""

    code = "ACC-208"


class UnsupportedUpstream(AccelError, RuntimeError):
    """The installed DeepSpeed requires accelerator methods that this accel-core does not have."""

    code = "ACC-301"


class UpstreamMissing(AccelError, ImportError):
    """A call needs stock deepspeed, which is not installed."""

    code = "ACC-302"


class NoDeviceForCollectives(AccelError, RuntimeError, ValueError):
    """torch.distributed cannot be initialized, because the process has no device.

    torch raises ValueError or RuntimeError there, by its version.
    """

    code = "ACC-303"


class NoBackendForCollectives(AccelError, RuntimeError, AssertionError, ValueError):
    """torch.distributed has no backend of that name, or none for the accelerator's tensors.

    torch raises one of these, by the name and by its version.
    """

    code = "ACC-304"


class UnloadableCheckpoint(AccelError, RuntimeError):
    """DeepSpeed cannot load a checkpoint into this engine, and would fail after it has changed a part."""

    code = "ACC-305"


class OpNotImplemented(AccelError, ValueError, NotImplementedError):
    """The accelerator does not have the op that was loaded. Upstream raises ValueError here."""

    code = "ACC-401"


class InvalidOpTable(AccelError, ImportError):
    """An op table names a builder that cannot be imported."""

    code = "ACC-402"


class BuildFailed(AccelError, RuntimeError):
    """A native library cannot be compiled here."""

    code = "ACC-403"


class CacheUnusable(AccelError, OSError):
    """The folder for built libraries is not writable, or not private to this user."""

    code = "ACC-404"


class OpFailed(AccelError, RuntimeError):
    """An op was loaded and computed a wrong result."""

    code = "ACC-405"


class LibraryMismatch(AccelError, OSError):
    """A native library and the Python code that loads it have different C interfaces."""

    code = "ACC-406"


class UnknownBuilder(AccelError, ValueError):
    """`accel ops` was called with a builder name that the accelerator does not have."""

    code = "ACC-407"


class NothingProfiled(AccelError, RuntimeError):
    """`accel ops profile` ran a script that took no optimizer step, or too few."""

    code = "ACC-408"


class InvalidZenFlow(AccelError, ValueError):
    """DeepSpeed's configuration asks for ZenFlow with options of fp16 that give losses of NaN."""

    code = "ACC-409"


class UnsupportedBackend(AccelError, ValueError):
    """The requested torch.compile backend is not registered."""

    code = "ACC-501"


class FunctionNotImplemented(AccelError, AttributeError):
    """An op or the device's runtime lacks a function. An AttributeError, so that `hasattr` is False."""

    code = "ACC-502"


class InvalidOpArgument(AccelError, ValueError):
    """A function of an op was called with sizes or types that it cannot use."""

    code = "ACC-510"


class InvalidDevice(AccelError, RuntimeError):
    """The process has no device with the given index."""

    code = "ACC-503"
