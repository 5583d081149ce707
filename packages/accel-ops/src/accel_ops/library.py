# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Finds the library of kernels: the one in the wheel, else one compiled from the packaged source, else none.

Having none is not an error: `accel_ops.kernels` then computes the same in plain torch.
"""

from __future__ import annotations

import ctypes
import shlex
import threading
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from accel_core.errors import AccelError, CacheUnusable, in_short
from accel_core.op_builder import Implementation, OpBuilder, native
from accel_ops import abi, binding

_HERE = Path(__file__).parent
PREBUILT = _HERE / "lib" / "libaccel_ops.so"
#: `Loaded.reason` of the library in the wheel.
WHEEL = "built library of the wheel"
#: It begins with this for a library that is lost with the process.
THIS_PROCESS = "compiled for this process"


@dataclass(frozen=True)
class Loaded:
    """The library's functions (None without a library), and the sentence that says where it came from or why not."""

    functions: Any
    reason: str


def source() -> native.NativeSource:
    """Return the packaged sources; in an editable install, those of the checkout."""
    return native.NativeSource.of_package("accel_ops", _HERE)


_loaded: Loaded | None = None
_loading = threading.Lock()


def load() -> Loaded:
    """Return the library of this process. Never raises; warns once where plain torch has to compute."""
    return _loaded or _load_once()


def origin() -> str:
    """Say where the loaded library came from; before `load`, where it would come from. Compiles nothing."""
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
    with _loading:  # other threads wait while the first one builds
        if _loaded is None:
            _loaded = _load()
            _warn_of_slowness(_loaded)
        return _loaded


def _warn_of_slowness(loaded: Loaded) -> None:
    if loaded.functions is None:
        text = f"computes in {loaded.reason}. That is slower: install a wheel with the library, or a C++17 compiler."
    elif loaded.reason.startswith(THIS_PROCESS):
        text = f"was {loaded.reason}\nEvery process does that again until the cache can be used: see ACC-404."
    else:
        return
    warnings.warn(f"accel-ops {text}", RuntimeWarning, stacklevel=5)


def _load() -> Loaded:
    problems: dict[str, None] = {}  # as an ordered set
    for attempt in (*([_prebuilt] if PREBUILT.is_file() else []), _cached, _private):
        try:
            loaded = attempt()
        except Exception as error:
            # Any failure of the machine, even one to start a process: the op works in plain torch.
            problems[in_short(error) or type(error).__name__] = None
        else:
            return Loaded(loaded.functions, "; ".join([loaded.reason, *problems]))
    return Loaded(None, f"plain torch: {'; '.join(problems)}")


def _prebuilt() -> Loaded:
    return Loaded(_open(str(PREBUILT)), WHEEL)


def _cached() -> Loaded:
    path = native.build_library(source())
    try:
        return Loaded(native.load_library(path, _open), f"compiled on this machine: {path.parent.name}")
    except CacheUnusable:
        raise
    except OSError as error:
        if not native.find_compiler():
            raise
        # An undamaged file that this machine or this release cannot use: build it again, once.
        native.forget_library(path)
        reason = f"compiled on this machine again: {in_short(error)}"
        return Loaded(native.load_library(native.build_library(source()), _open), reason)


def _private() -> Loaded:
    # The file may be deleted once dlopen has mapped it.
    with native.build_for_this_process(source()) as path:
        return Loaded(_open(str(path)), THIS_PROCESS)


def _open(path: str) -> Any:
    # torch first: this library then uses the OpenMP runtime that torch has loaded.
    import torch  # noqa: F401

    opened = ctypes.CDLL(path)
    abi.check(opened)
    return binding.declare(opened)


class HostBuilder(OpBuilder):
    """A builder whose op always works, with the library or in plain torch; `reason` says which of them."""

    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (
        Implementation.HOST,
        Implementation.COMPILED,
        Implementation.PLAIN,
    )

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and where the library comes from."""
        return True, origin()

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions, on the library or in plain torch. Never raises."""
        load()
        return self.functions()

    @abstractmethod
    def functions(self) -> Any:
        """Return an object with upstream's functions."""
