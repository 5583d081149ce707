# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The kernels' library: the one in the wheel, else built from the packaged source, else none.

Having none is no error: `accel_host.kernels` then computes the same in plain torch.
"""

from __future__ import annotations

import ctypes
import shlex
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_core.errors import AccelError, in_short
from accel_core.op_builder import native
from accel_host import binding

_HERE = Path(__file__).parent
PREBUILT = _HERE / "lib" / "libaccel_host.so"
#: The reason of a library that was not compiled here.
WHEEL = "built library of the wheel"


@dataclass(frozen=True)
class Loaded:
    """The library, None when it can not be had here, and the sentence how or why not."""

    functions: Any
    reason: str


def source() -> native.NativeSource:
    """The packaged sources; those of the workspace in an editable install."""
    csrc, headers = _HERE / "csrc", _HERE / "include"
    if not csrc.is_dir():
        workspace = _HERE.parents[3]
        csrc, headers = workspace / "packages/accel-host/csrc", workspace / "shared/csrc/include"
    return native.NativeSource(
        "accel_host",
        units=tuple(sorted(csrc.glob("*.cpp"))),
        folders=(csrc, headers),
        flags=(f"@{csrc / 'flags.txt'}",),
    )


_loaded: Loaded | None = None
_loading = threading.Lock()


def load() -> Loaded:
    """The library of this process. Never raises; warns once when plain torch has to serve."""
    return _loaded or _load_once()


def origin() -> str:
    """Where the library came from, once it is loaded; before, how `load` would get it, without doing it."""
    if _loaded:
        return _loaded.reason
    if PREBUILT.is_file():
        return WHEEL
    try:
        command = native.find_compiler()
        if command:
            return f"to be compiled once by {shlex.join(command)}, or plain torch if that fails"
        if native.built_library(source()):
            return "compiled on this machine before"
    except (AccelError, OSError) as error:
        return f"plain torch: {in_short(error)}"
    return "plain torch: no C++ compiler on PATH"


def _load_once() -> Loaded:
    global _loaded
    with _loading:  # threads that come while the first one builds wait for its result
        if _loaded is None:
            _loaded = _load()
            if _loaded.functions is None:
                warnings.warn(
                    f"accel-host computes in {_loaded.reason}. That is slower: install a wheel with the built "
                    "library, or a C++17 compiler.",
                    RuntimeWarning,
                    stacklevel=4,
                )
        return _loaded


def _load() -> Loaded:
    problems = []
    for way in (*([_prebuilt] if PREBUILT.is_file() else []), _cached, _private):
        try:
            return way()
        except Exception as error:
            # Whatever a machine comes up with, from a full process table on: the op is there in plain torch.
            problems.append(in_short(error) or type(error).__name__)
    return Loaded(None, f"plain torch: {'; '.join(dict.fromkeys(problems))}")


def _prebuilt() -> Loaded:
    return Loaded(_open(PREBUILT), WHEEL)


def _cached() -> Loaded:
    path = native.build_library(source())
    try:
        return Loaded(_open(path), f"compiled on this machine: {path.parent.name}")
    except OSError:
        if not native.find_compiler():
            raise
        # Whole, but not for this machine: built anew, once.
        native.forget_library(path)
        return Loaded(_open(native.build_library(source())), "compiled on this machine, anew")


def _private() -> Loaded:
    # dlopen maps the file: it is not needed once it is open.
    with native.build_for_this_process(source()) as path:
        return Loaded(_open(path), "compiled for this process: the cache can not be used")


def _open(path: Path) -> Any:
    # torch first: its OpenMP runtime is then the one that this library shares.
    import torch  # noqa: F401

    functions = binding.declare(ctypes.CDLL(str(path)))
    if functions.accel_abi_version() != binding.ABI_VERSION:
        raise OSError(f"{path.name} has interface {functions.accel_abi_version()}, not {binding.ABI_VERSION}")
    return functions
