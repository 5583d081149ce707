# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The C interface of csrc/accel_host.h, for ctypes. Calls release Python's lock."""

from __future__ import annotations

import ctypes
import struct
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any

ABI_VERSION = 1
OK, NO_MEMORY, OVERLAP = 0, 3, 4


class Lists(ctypes.Structure):
    """`accel_lists`; of its lists the addresses."""

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


#: `accel_adam_single`: four addresses, size, three types, threads, and `accel_adam_options`.
ADAM_SINGLE = struct.Struct("=4Qq4i6dq2i")

_LISTS, _ADAM = POINTER(Lists), POINTER(AdamOptions)
_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "accel_adam_single_tensor": (c_int32, (c_char_p,)),
    "accel_adam": (c_int32, (_LISTS, _ADAM)),
    "accel_adam_rollback": (c_int32, (_LISTS, _ADAM)),
    "accel_adagrad": (c_int32, (_LISTS, *[c_double] * 4)),
    "accel_lion": (c_int32, (_LISTS, *[c_double] * 5)),
    "accel_sgd": (c_int32, (_LISTS, *[c_double] * 5, c_int32, c_int32)),
    "accel_sum_of_squares": (c_int32, (_LISTS, POINTER(c_double))),
    "accel_zero": (c_int32, (_LISTS,)),
    "accel_triad": (None, (c_void_p, c_void_p, c_void_p, c_float, c_int64, c_int32)),
    "accel_level": (c_int32, ()),
    "accel_best_level": (c_int32, ()),
    "accel_set_level": (c_int32, (c_int32,)),
    "accel_has_openmp": (c_int32, ()),
    "accel_abi_version": (c_int32, ()),
}


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Give every function its types; raises AttributeError where one is missing."""
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
