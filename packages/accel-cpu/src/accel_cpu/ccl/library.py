# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""oneCCL's libraries and their C interface (oneapi/ccl.h)."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accel_cpu.errors import OneCCLFailed

_LIBRARY = "libccl.so.2"
#: Needed by oneCCL's library for CPUs, which has no path to them: found by name once they are loaded.
_NEEDED = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libsycl.so.*")
#: ONECCL_UNIQUE_ID_BYTES.
UNIQUE_ID_BYTES = 4096


class UniqueId(ctypes.Structure):
    """onecclUniqueId: how the ranks of a communicator find each other."""

    _fields_ = (("data", ctypes.c_uint8 * UNIQUE_ID_BYTES),)


@functools.cache
def folder() -> Path | None:
    """Return the folder of oneCCL's libraries, of the distribution `oneccl` or of CCL_ROOT; None without oneCCL."""
    try:
        files = importlib.metadata.files("oneccl") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())) for file in files if file.name == _LIBRARY]
    root = os.environ.get("CCL_ROOT")
    if root:
        found.append(Path(root, "lib", _LIBRARY))
    return next((path.resolve().parent for path in found if path.is_file()), None)


def missing() -> OneCCLFailed:
    """Return the error of a machine without oneCCL."""
    return OneCCLFailed(
        f"oneCCL cannot be loaded: no distribution oneccl, and no {_LIBRARY} in $CCL_ROOT/lib",
        do="pip install 'oneccl>=2022.1', or use the backend shm, which ranks of one host have without it",
    )


@functools.cache
def load() -> Any:
    """Return the library, ready for CPUs; raises `OneCCLFailed`."""
    home = folder()
    if home is None:
        raise missing()
    try:
        for pattern in _NEEDED:
            for path in sorted(home.glob(pattern))[:1]:
                ctypes.CDLL(str(path))
        library = ctypes.CDLL(str(home / _LIBRARY))
        ctypes.CDLL(str(home / "libccl.so.1"))
    except OSError as error:
        raise OneCCLFailed(
            f"oneCCL cannot be loaded: {error}",
            do="pip install --force-reinstall 'oneccl>=2022.1', or use the backend gloo or shm",
        ) from error
    _declare(library)
    with settings():
        version = ctypes.c_int()
        check(library, library.onecclGetVersion(ctypes.byref(version)), "oneCCL cannot be initialized")
    return library


def check(library: Any, result: int, what: str) -> None:
    """Raise `OneCCLFailed` unless a call of the library succeeded."""
    if result == 0:
        return
    texts = (library.onecclGetErrorString(result), library.onecclGetLastError(None))
    raise OneCCLFailed(
        f"{what}: {': '.join(text.decode(errors='replace') for text in texts if text)}",
        do="set CCL_LOG_LEVEL=info for oneCCL's own account, or use the backend gloo or shm",
    )


@contextmanager
def settings() -> Iterator[None]:
    """Set what oneCCL reads from the environment while it starts, unless the user has.

    Left alone it takes its part for SYCL devices, fails without one, and warns of every launcher but Intel MPI's. Its
    thread waits busily: where a rank has one CPU it keeps the rank's own thread from it for milliseconds, each time.
    """
    wanted = {
        "CCL_PLUGIN": f"{folder()}/libccl_legacy_cpu.so",
        "CCL_LOG_LEVEL": "error",
        "CCL_YIELD": "sched_yield",
    }
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _declare(library: Any) -> None:
    address, count, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    end = (address, address)  # communicator and stream
    arguments: dict[str, tuple[Any, ...]] = {
        "onecclGetVersion": (ctypes.POINTER(number),),
        "onecclGetUniqueId": (ctypes.POINTER(UniqueId),),
        "onecclCommInitRank": (ctypes.POINTER(address), count, UniqueId, number),
        "onecclCommDestroy": (address,),
        "onecclAllReduce": (address, address, count, number, number, *end),
        "onecclReduce": (address, address, count, number, number, number, *end),
        "onecclBroadcast": (address, address, count, number, number, *end),
        "onecclAllGather": (address, address, count, number, *end),
        "onecclReduceScatter": (address, address, count, number, number, *end),
        "onecclAllToAll": (address, address, count, number, *end),
    }
    for name, types in arguments.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, number
    for name, argument in (("onecclGetErrorString", number), ("onecclGetLastError", address)):
        function = getattr(library, name)
        function.argtypes, function.restype = (argument,), ctypes.c_char_p
