# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The library of the collectives and its C interface (csrc/accel_shm.h)."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from accel_core.op_builder import native

_PACKAGE = Path(__file__).parents[1]
PREBUILT = _PACKAGE / "lib" / "libaccel_shm.so"
#: ACCEL_SHM_VERSION and ACCEL_SHM_NONCE.
VERSION = 2
NONCE = 32

BARRIER, ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = range(1, 7)
OK, BAD_REQUEST, MISMATCH, DEAD, STOPPED, TIMEOUT, INTERRUPTED, LEFT = range(8)

Cancelled = ctypes.CFUNCTYPE(ctypes.c_int32)


class Python(ctypes.Structure):
    """accel_shm_python."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("save_thread", "restore_thread", "check_signals"))


def _address(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


PYTHON = Python(*map(_address, ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")))


class Request(ctypes.Structure):
    """accel_shm_request."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("operation", ctypes.c_int32),
        ("root", ctypes.c_int32),
        ("bytes", ctypes.c_int64),
        ("detail", ctypes.c_int64),
    )


class Buffers(ctypes.Structure):
    """accel_shm_buffers."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("sends", ctypes.c_void_p),
        ("receives", ctypes.c_void_p),
        ("timeout_ms", ctypes.c_int64),
        ("threads", ctypes.c_int32),
        ("python", ctypes.c_void_p),
        ("cancelled", Cancelled),
    )


class Result(ctypes.Structure):
    """accel_shm_result."""

    _fields_ = (("status", ctypes.c_int32), ("rank", ctypes.c_int32), ("theirs", Request))


def source() -> native.NativeSource:
    """Return the packaged sources; in an editable install, those of the checkout."""
    return native.NativeSource.of_package("accel_shm", _PACKAGE)


@functools.cache
def load() -> Any:
    """Return the library, of the wheel or compiled here; raises `BuildFailed`, `CacheUnusable` or OSError."""
    # torch first: the library then uses the OpenMP runtime that torch has loaded.
    import torch  # noqa: F401

    if PREBUILT.is_file():
        return _open(str(PREBUILT))
    return native.load_library(native.build_library(source()), _open)


def _open(path: str) -> Any:
    # PyDLL: the functions hold the interpreter lock, and accel_shm_run releases it itself.
    library: Any = ctypes.PyDLL(path)
    library.accel_shm_version.restype = ctypes.c_int32
    found = library.accel_shm_version()
    if found != VERSION:
        raise OSError(f"the library has interface {found}, this release of accel-cpu needs {VERSION}")
    nonce = ctypes.c_char_p
    numbers = ctypes.POINTER(ctypes.c_int32)
    library.accel_shm_create.argtypes = (ctypes.c_int32, ctypes.c_int64, nonce)
    library.accel_shm_create.restype = ctypes.c_int32
    library.accel_shm_join.argtypes = (
        ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, nonce, numbers, ctypes.c_int32, numbers,
    )  # fmt: skip
    library.accel_shm_join.restype = ctypes.c_void_p
    library.accel_shm_run.argtypes = (ctypes.c_void_p,) * 4
    library.accel_shm_run.restype = ctypes.c_int32
    library.accel_shm_break.argtypes = (ctypes.c_void_p,)
    library.accel_shm_break.restype = None
    library.accel_shm_leave.argtypes = (ctypes.c_void_p,)
    library.accel_shm_leave.restype = None
    return library
