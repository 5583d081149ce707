# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The kernels' library: the one in the wheel, else built from the packaged source, else none.

Having none is no error: `accel_host.kernels` then computes the same in plain torch.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_core.errors import AccelError
from accel_core.native import Source, build
from accel_host import binding

_HERE = Path(__file__).parent
PREBUILT = _HERE / "lib" / "libaccel_host.so"


@dataclass(frozen=True)
class Loaded:
    """The library, None when it can not be had here, and the sentence how or why not."""

    functions: Any
    reason: str


def source() -> Source:
    """The packaged sources; those of the workspace in an editable install."""
    workspace = _HERE.parents[3]
    csrc, headers = _HERE / "csrc", _HERE / "include"
    if not csrc.is_dir():
        csrc, headers = workspace / "packages/accel-host/csrc", workspace / "shared/csrc/include"
    return Source(
        "accel_host",
        units=tuple(sorted(csrc.glob("*.cpp"))),
        folders=(csrc, headers),
        flags=(f"@{csrc / 'flags.txt'}",),
    )


@functools.cache
def load() -> Loaded:
    """The library of this process. Never raises; warns once when plain torch has to serve."""
    problems = []
    for way in (*([_prebuilt] if PREBUILT.is_file() else []), _cached, _private):
        try:
            return way()
        except (AccelError, OSError, AttributeError) as error:
            problems.append(_first_line(error))
    found = "; ".join(dict.fromkeys(problems))
    warnings.warn(
        f"accel-host computes in plain torch, which is slower: {found}. Install a wheel with the built library, "
        "or a C++17 compiler.",
        RuntimeWarning,
        stacklevel=3,
    )
    return Loaded(None, f"plain torch: {found}")


def expected() -> str:
    """How `load` would get the library, without doing it."""
    if PREBUILT.is_file():
        return "built library of the wheel"
    from accel_core.native import compiler

    path = compiler.find()
    return "plain torch: no C++ compiler on PATH" if path is None else f"compiled by {path} when first used"


def _prebuilt() -> Loaded:
    return Loaded(_open(PREBUILT), "built library of the wheel")


def _cached() -> Loaded:
    path = build.library(source())
    try:
        return Loaded(_open(path), f"compiled on this machine: {path.parent.name}")
    except OSError:
        # Whole, but not for this machine: built anew, once.
        build.forget(path)
        return Loaded(_open(build.library(source())), "compiled on this machine, anew")


def _private() -> Loaded:
    # dlopen maps the file: it is not needed once it is open.
    with build.private(source()) as path:
        return Loaded(_open(path), "compiled for this process: the cache can not be used")


def _open(path: Path) -> Any:
    # torch first: its OpenMP runtime is then the one that this library shares.
    import torch  # noqa: F401

    functions = binding.declare(ctypes.CDLL(str(path)))
    if functions.accel_abi_version() != binding.ABI_VERSION:
        raise OSError(f"{path.name} has interface {functions.accel_abi_version()}, not {binding.ABI_VERSION}")
    return functions


def _first_line(error: BaseException) -> str:
    return f"{error.what}: {error.found}" if isinstance(error, AccelError) else str(error)
