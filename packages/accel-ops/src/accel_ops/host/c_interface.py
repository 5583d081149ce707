# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The C interface of csrc/accel_ops.h as ctypes declarations. Calls release the GIL.

A changed declaration raises `ABI_VERSION`, here and in the header; a library of another version is refused.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_int32, c_int64, c_void_p
from typing import Any

from accel_core.errors import LibraryMismatch

ABI_VERSION = 9
#: Element types.
F32, BF16, F16 = range(3)
#: Status codes.
OK, BAD_TYPE, BAD_LEVEL, NO_MEMORY, OVERLAP = range(5)
#: Engines of file I/O, and flags of its requests.
URING, THREADS = 1, 2
IO_WRITE, IO_DIRECT, IO_RESERVE = 1, 2, 4


class TensorLists(ctypes.Structure):
    """`accel_tensor_lists`. Lists are addresses of arrays that the caller keeps alive."""

    _fields_ = (
        ("tensors", c_int64),
        ("sizes", c_void_p),
        ("params", c_void_p),
        ("grads", c_void_p),
        ("first", c_void_p),
        ("second", c_void_p),
        ("copies", c_void_p),
        ("param_type", c_int32),
        ("grad_type", c_int32),
        ("state_type", c_int32),
        ("copy_type", c_int32),
        ("threads", c_int32),
    )


class AdamOptions(ctypes.Structure):
    """`accel_adam_options`."""

    _fields_ = (
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("grad_factor", c_double),
        ("step", c_int64),
        ("decoupled", c_int32),
        ("bias_correction", c_int32),
    )


class Gradient(ctypes.Structure):
    """`accel_gradient`."""

    _fields_ = (
        ("grad", c_void_p),
        ("accumulated", c_void_p),
        ("destination", c_void_p),
        ("size", c_int64),
        ("grad_type", c_int32),
        ("destination_type", c_int32),
        ("add", c_int32),
        ("threads", c_int32),
    )


class IoOptions(ctypes.Structure):
    """`accel_io_options`."""

    _fields_ = (
        ("block_size", c_int64),
        ("fault_seed", c_int64),
        ("engine", c_int32),
        ("depth", c_int32),
        ("workers", c_int32),
        ("fault_rate", c_int32),
    )


class IoRequest(ctypes.Structure):
    """`accel_io_request`: a transfer between memory and an open file. The caller keeps both until it has ended."""

    _fields_ = (
        ("data", c_void_p),
        ("size", c_int64),
        ("offset", c_int64),
        ("fd", c_int32),
        ("flags", c_int32),
        ("memory_alignment", c_int32),
        ("offset_alignment", c_int32),
    )

    @property
    def writes(self) -> bool:
        """True if memory is written to the file."""
        return bool(self.flags & IO_WRITE)


class IoResult(ctypes.Structure):
    """`accel_io_result`: `done` bytes from the first on were transferred; `error` is 0 or a value of errno."""

    _fields_ = (("done", c_int64), ("error_offset", c_int64), ("error", c_int32), ("reserved", c_int32))


class IoFile(ctypes.Structure):
    """`accel_io_file`."""

    _fields_ = (
        ("size", c_int64),
        ("memory_alignment", c_int32),
        ("offset_alignment", c_int32),
        ("mode", c_int32),
        ("reserved", c_int32),
    )


_LISTS, _ADAM = POINTER(TensorLists), POINTER(AdamOptions)
#: Result and argument types by function.
PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "accel_adam": (c_int32, (_LISTS, _ADAM)),
    "accel_adam_rollback": (c_int32, (_LISTS, _ADAM)),
    "accel_adagrad": (c_int32, (_LISTS, *[c_double] * 4)),
    "accel_lion": (c_int32, (_LISTS, *[c_double] * 6)),
    "accel_sum_of_squares": (c_int32, (_LISTS, POINTER(c_double))),
    "accel_copy_gradient": (c_int32, (POINTER(Gradient), POINTER(c_double))),
    "accel_level": (c_int32, ()),
    "accel_best_level": (c_int32, ()),
    "accel_set_level": (c_int32, (c_int32,)),
    "accel_abi_version": (c_int32, ()),
    "accel_io_open": (c_int32, (POINTER(IoOptions), POINTER(c_void_p))),
    "accel_io_submit": (c_int64, (c_void_p, POINTER(IoRequest))),
    "accel_io_wait": (c_int32, (c_void_p, c_int64, c_int64, POINTER(IoResult))),
    "accel_io_forget": (c_int32, (c_void_p, c_int64)),
    "accel_io_pause": (c_int32, (c_void_p, c_int64)),
    "accel_io_resume": (c_int32, (c_void_p,)),
    "accel_io_close": (c_int32, (c_void_p, c_int64)),
    "accel_io_abandon": (c_int32, (c_void_p,)),
    "accel_io_run": (c_int32, (POINTER(IoRequest), POINTER(IoResult))),
    "accel_io_inspect": (c_int32, (c_int32, POINTER(IoFile))),
}


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Set the types of every function; raises `LibraryMismatch` for a library of another version."""
    version = getattr(library, "accel_abi_version", lambda: "none")()
    missing = [name for name in PROTOTYPES if not hasattr(library, name)]
    if version != ABI_VERSION or missing:
        raise LibraryMismatch(
            f"{library._name} has the C interface {version}, and this accel-ops {ABI_VERSION}"
            + (f"; it lacks {', '.join(missing[:3])}" if missing else ""),
            do="reinstall accel-ops, so that library and Python code are of one release",
        )
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
