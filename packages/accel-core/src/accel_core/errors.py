# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors in four parts: what failed, what was found, what was expected, what to do.

Each has a code with its paragraph in docs/errors.md. The bases are the exception types that people
already catch around DeepSpeed (`ValueError`, `ImportError`, `RuntimeError`, …).
"""

from __future__ import annotations

from typing import ClassVar


class AccelError(Exception):
    """Base of every error that this project raises on purpose."""

    code: ClassVar[str] = "ACC-000"

    def __init__(self, *, what: str, found: str, expected: str, do: str) -> None:
        self.what, self.found, self.expected, self.do = what, found, expected, do
        super().__init__(str(self))

    def __str__(self) -> str:
        return four_parts(f"[{self.code}] {self.what}", found=self.found, expected=self.expected, do=self.do)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their args; ours are keyword-only. Launchers send errors between processes.
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
    """What went wrong in one line, for a sentence about a candidate; empty for an error without a text."""
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
    """An environment variable of ours has a value without a meaning."""

    code = "ACC-104"


class InvalidCommand(AccelError, ImportError):
    """A package's sub-command of `accel` cannot be loaded or is none."""

    code = "ACC-105"


class InvalidTraits(AccelError, ValueError):
    """A vendor's traits name a feature or an op that does not exist."""

    code = "ACC-106"


class UnknownAccelerator(AccelError, ValueError):
    """DS_ACCELERATOR (or ACCEL_SKIP) names no accelerator there is."""

    code = "ACC-201"


class AcceleratorUnavailable(AccelError, ValueError):
    """The accelerator asked for has no package or no runtime here."""

    code = "ACC-202"


class AcceleratorBroken(AccelError, ValueError):
    """The accelerator asked for has a runtime that fails."""

    code = "ACC-203"


class AmbiguousAccelerator(AccelError, ValueError):
    """Two accelerators of equal priority are both present."""

    code = "ACC-204"


class StrictSelection(AccelError, RuntimeError):
    """ACCEL_STRICT=1 refuses a CPU fall-back or a broken vendor."""

    code = "ACC-205"


class NotAnAccelerator(AccelError, AssertionError, TypeError):
    """set_accelerator() was given something that is not an accelerator.

    AssertionError is what upstream raises here, TypeError what Python would.
    """

    code = "ACC-206"


class NoAccelerator(AccelError, RuntimeError):
    """Nothing here can serve, not even the CPU."""

    code = "ACC-207"


class TorchUnavailable(AccelError, ImportError, RuntimeError):
    """torch is installed and cannot be imported, by its own fault or a backend extension's."""

    code = "ACC-208"


class UnsupportedUpstream(AccelError, RuntimeError):
    """The installed DeepSpeed asks for more than this accel-core offers."""

    code = "ACC-301"


class UpstreamMissing(AccelError, ImportError):
    """A call needs stock deepspeed, which is not installed."""

    code = "ACC-302"


class OpNotImplemented(AccelError, ValueError, NotImplementedError):
    """An op that this accelerator does not have was loaded. ValueError is what upstream raises here."""

    code = "ACC-401"


class InvalidOpTable(AccelError, ImportError):
    """An op table names a builder that cannot be imported."""

    code = "ACC-402"


class BuildFailed(AccelError, RuntimeError):
    """A native library cannot be compiled here."""

    code = "ACC-403"


class CacheUnusable(AccelError, OSError):
    """The folder for built libraries cannot be written, or not be trusted."""

    code = "ACC-404"


class OpFailed(AccelError, RuntimeError):
    """An op loaded and computed something wrong."""

    code = "ACC-405"


class LibraryMismatch(AccelError, OSError):
    """A native library has another C interface than the Python code that loads it."""

    code = "ACC-406"


class UnknownBuilder(AccelError, ValueError):
    """`accel ops` was called with a builder that the accelerator does not know."""

    code = "ACC-407"


class UnsupportedBackend(AccelError, ValueError):
    """A torch.compile backend that is not registered was asked for."""

    code = "ACC-501"


class FunctionNotImplemented(AccelError, AttributeError):
    """A function that an op, or the device's runtime, does not have. AttributeError is what callers probe for."""

    code = "ACC-502"


class InvalidDevice(AccelError, RuntimeError):
    """A device index was asked for that this process does not have."""

    code = "ACC-503"
