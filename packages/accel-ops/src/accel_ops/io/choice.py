# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the engine: io_uring where this process may use it, else threads, else Python; ACCEL_IO_ENGINE overrides."""

from __future__ import annotations

import os

from accel_core.errors import InvalidEnvironment
from accel_ops import library
from accel_ops.io.native_engine import NativeEngine
from accel_ops.io.python_engine import PythonEngine
from accel_ops.io.requests import Engine, EngineOptions

#: Documented in accel_core.env, which only core imports.
_VARIABLE = "ACCEL_IO_ENGINE"
ENGINES = ("uring", "threads", "python")


def open_engine(options: EngineOptions, wanted: str | None = None) -> Engine:
    """Open the engine of that name, by default that of ACCEL_IO_ENGINE, by default the first that this process can use.

    Raises InvalidEnvironment if the one that is wanted cannot be used, or is not one of `ENGINES`.
    """
    name = os.environ.get(_VARIABLE, "").strip().lower() if wanted is None else wanted
    if name and name not in ENGINES:
        raise _invalid(name, "no such engine", f"one of {', '.join(ENGINES)}")
    functions, origin = library.load().functions, library.load().reason
    if name == "python":
        return PythonEngine("ACCEL_IO_ENGINE", options)
    if functions is None:
        if name:
            raise _invalid(name, f"no library: {origin}", "the library of accel-ops")
        return PythonEngine(f"no library: {origin}", options)
    reason = "ACCEL_IO_ENGINE" if name else "io_uring works in this process"
    if name != "threads":
        try:
            return NativeEngine(functions, "uring", reason, options)
        except OSError as error:
            if name:
                raise _invalid(name, f"io_uring_setup: {error}", "io_uring, in Linux 5.7 or later") from error
            reason = f"no io_uring: {error}"
    return NativeEngine(functions, "threads", reason, options)


def uses_library(wanted: str | None = None) -> bool:
    """Whether `open_engine` with this argument gives an engine of the library. Opens none."""
    name = os.environ.get(_VARIABLE, "").strip().lower() if wanted is None else wanted
    return name != "python" and library.load().functions is not None


def _invalid(name: str, found: str, expected: str) -> InvalidEnvironment:
    return InvalidEnvironment(
        what=f"the engine {name!r} of file I/O cannot be used",
        found=found,
        expected=expected,
        do=f"unset {_VARIABLE}: the best engine that works is then chosen",
    )
