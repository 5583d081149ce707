# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Finds the library of kernels: the one in the wheel, else one compiled from the packaged source, else none.

Having none is not an error: `accel_ops.optimizers.cpu_steps` then computes the same in plain torch.
"""

from __future__ import annotations

import ctypes
import dataclasses
import shlex
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

from accel_core.errors import AccelError, CacheUnusable, in_short
from accel_core.op_builder import Implementation, native
from accel_ops.host import c_interface
from accel_ops.op import LoadedOp, Route

_HERE = Path(__file__).parents[1]
_MODULE = "accel_ops_library"
PREBUILT = _HERE / "lib" / "libaccel_ops.so"
#: `Loaded.reason` of the library in the wheel.
WHEEL = "built library of the wheel"
#: It begins with this for a library that is lost with the process.
THIS_PROCESS = "compiled for this process"


class WithoutModule:
    """In place of the library's extension module: calls go through ctypes, which costs some microseconds each."""

    adam_update = staticmethod(lambda adams, function: function)
    pack = staticmethod(lambda *lists: None)


@dataclass(frozen=True)
class Loaded:
    """The library's functions (None without a library), and the sentence that says where it came from or why not.

    module: its functions for Python objects (csrc/python.cpp).
    """

    functions: Any
    reason: str
    module: Any = WithoutModule


def source() -> native.NativeSource:
    """Return the packaged sources; in an editable install, those of the checkout."""
    found = native.NativeSource.of_package("accel_ops", _HERE)
    # The headers of Python, and on a Mac leave to find its functions when the library is loaded.
    later = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
    return dataclasses.replace(found, flags=(*found.flags, f"-I{sysconfig.get_path('include')}", *later))


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
            return dataclasses.replace(loaded, reason="; ".join([loaded.reason, *problems]))
    return Loaded(None, f"plain torch: {'; '.join(problems)}")


def _prebuilt() -> Loaded:
    return _open(str(PREBUILT), WHEEL)


def _cached() -> Loaded:
    path = native.build_library(source())
    try:
        return native.load_library(
            path, partial(_open, reason=f"compiled on this machine: {path.parent.name}")
        )
    except CacheUnusable:
        raise
    except OSError as error:
        if not native.find_compiler():
            raise
        # An undamaged file that this machine or this release cannot use: build it again, once.
        native.forget_library(path)
        open_again = partial(_open, reason=f"compiled on this machine again: {in_short(error)}")
        return native.load_library(native.build_library(source()), open_again)


def _private() -> Loaded:
    # The file may be deleted once dlopen has mapped it.
    with native.build_for_this_process(source()) as path:
        return _open(str(path), THIS_PROCESS)


def _open(path: str, reason: str) -> Loaded:
    # torch first: this library then uses the OpenMP runtime that torch has loaded.
    import torch  # noqa: F401

    return Loaded(c_interface.declare(ctypes.CDLL(path)), reason, _module(path))


def _module(path: str) -> Any:
    """Return the library as an extension module; `WithoutModule` where Python, torch (before 2.10) or it have none."""
    import torch

    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    # The stable interface of an interpreter without a GIL is another one.
    stable = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
    if exchange is None or not stable:
        return WithoutModule
    loader = ExtensionFileLoader(_MODULE, path)
    try:
        module = module_from_spec(ModuleSpec(_MODULE, loader, origin=path))
    except ImportError:  # compiled without Python's headers
        return WithoutModule
    loader.exec_module(module)
    is_neg = torch.empty(0, device="cpu").is_neg
    fits = module.setup(torch.Tensor, torch.nn.Parameter, torch.get_num_threads, exchange, is_neg)
    return module if fits else WithoutModule


def host(functions: Callable[[], Any]) -> Route:
    """Return the route of an op on the host: `functions` uses the library, or plain torch where there is none."""

    def loaded() -> LoadedOp:
        load()
        return LoadedOp(functions(), origin)

    return Route((Implementation.HOST, Implementation.COMPILED), origin, loaded)
