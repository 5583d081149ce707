# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The library's functions as builtin functions of the interpreter, which cost half a microsecond a call.

ctypes takes several times that to prepare a call. The library includes neither Python's nor torch's headers: it gets
the addresses of the interpreter's functions, and reads tensors through torch's table for DLPack's C exchange (torch
2.10 or later). Where one of them is missing, and in free-threaded interpreters, whose objects have another layout,
calls go through ctypes.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import sysconfig
import types
from collections.abc import Callable
from ctypes import POINTER, c_uint32, c_void_p, py_object
from typing import Any

import torch

from accel_ops import binding

_FUNCTIONS = {
    "new_function": "PyCFunction_NewEx",
    "call_objects": "PyObject_CallFunctionObjArgs",
    "vectorcall_method": "PyObject_VectorcallMethod",
    "inc_ref": "Py_IncRef",
    "dec_ref": "Py_DecRef",
    "err_clear": "PyErr_Clear",
    "err_occurred": "PyErr_Occurred",
    "dict_item": "PyDict_GetItemWithError",
    "tuple_item": "PyTuple_GetItem",
    "tuple_size": "PyTuple_Size",
    "list_size": "PyList_Size",
    "list_item": "PyList_GetItem",
    "long_from_long": "PyLong_FromLong",
    "long_as_longlong": "PyLong_AsLongLong",
    "float_as_double": "PyFloat_AsDouble",
    "float_from_double": "PyFloat_FromDouble",
    "bytes_new": "PyBytes_FromStringAndSize",
    "bytes_data": "PyBytes_AsString",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
}
#: Objects that live as long as the process; in CPython `id` is the address.
_OBJECTS = {
    "int_type": int,
    "float_type": float,
    "list_type": list,
    "tensor_type": torch.Tensor,
    "parameter_type": torch.nn.Parameter,
    "true_object": True,
    "false_object": False,
    "none": None,
    "call_name": sys.intern("__call__"),
    "get_num_threads": torch.get_num_threads,
}
_METH_NOARGS = 4
_DLPACK = "__dlpack_c_exchange_api__"
_DLPACK_MAJOR = 1


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI, version 1."""


_Exchange._fields_ = [
    ("major", c_uint32),
    ("minor", c_uint32),
    ("previous", POINTER(_Exchange)),
    ("allocator", c_void_p),
    ("managed_tensor_from", c_void_p),
    ("managed_tensor_to", c_void_p),
    ("dltensor_from", c_void_p),
    ("work_stream", c_void_p),
]


def adam_update(functions: Any, adams: dict[int, bool], function: Callable[..., int]) -> Callable[..., int]:
    """Return a builtin function that does what `function`, DeepSpeed's adam_update, does; the function itself without.

    functions: the loaded library.
    adams: whether the decay is decoupled, by optimizer ID; the builtin function reads it at each call.
    """
    made: Callable[..., int] = _function(functions, binding.ADAM_UPDATE, (adams, function)) or function
    return made


@functools.cache
def pack(functions: Any) -> Callable[..., bytes | None]:
    """Return the builtin function that reads lists of tensors; without it one that reads none.

    Its arguments are lists of tensors, its result is None if they are no plain case: not contiguous, not of one dtype a
    list, …; else the element types of the lists, the sizes, and the addresses of each list, in 64 bits each.
    """
    return _function(functions, binding.PACK, None) or (lambda *_: None)


@functools.cache
def advance(functions: Any) -> Callable[[list[torch.Tensor], float], float | None]:
    """Return the builtin function that adds a number to step counters; without it one that adds none.

    It returns the new value if all counters had one value, else None, with nothing changed.
    """
    return _function(functions, binding.ADVANCE, None) or (lambda *_: None)


def _function(functions: Any, index: int, state: object) -> Any:
    python = interpreter()
    if functions is None or python is None:
        return None
    # Through PYFUNCTYPE, as CDLL would release the GIL.
    make = ctypes.PYFUNCTYPE(py_object, POINTER(binding.Python), ctypes.c_int32, py_object)(
        ctypes.cast(functions.accel_python_function, c_void_p).value  # type: ignore[arg-type]
    )
    return make(python, index, state)


@functools.cache
def interpreter() -> binding.Python | None:
    """Return the addresses that the library needs; None where one is missing."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    dltensor_from, is_neg = _dltensor_from(), _c_function(torch.empty(0, device="cpu").is_neg)
    if dltensor_from is None or is_neg is None:
        return None
    try:
        addresses = {
            field: ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p).value
            for field, name in _FUNCTIONS.items()
        }
    except AttributeError:
        return None
    addresses |= {field: id(value) for field, value in _OBJECTS.items()}
    return binding.Python(**addresses, dltensor_from=dltensor_from, is_neg=is_neg)


def _c_function(method: Any) -> int | None:
    """Return the address of the C function of a builtin method without arguments."""
    python = ctypes.pythonapi
    flags = ctypes.PYFUNCTYPE(ctypes.c_int, py_object)(("PyCFunction_GetFlags", python))
    function = ctypes.PYFUNCTYPE(c_void_p, py_object)(("PyCFunction_GetFunction", python))
    if not isinstance(method, types.BuiltinFunctionType) or flags(method) != _METH_NOARGS:
        return None
    address: int | None = function(method)
    return address


def _dltensor_from() -> int | None:
    """Return the address of torch's function that fills a DLTensor from a tensor; None for torch before 2.10."""
    capsule = getattr(torch.Tensor, _DLPACK, None)
    if capsule is None:
        return None
    pointer = ctypes.PYFUNCTYPE(POINTER(_Exchange), py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    try:
        exchange = pointer(capsule, b"dlpack_exchange_api")
    except ValueError:
        return None
    while exchange and exchange.contents.major > _DLPACK_MAJOR:
        exchange = exchange.contents.previous
    if not exchange or exchange.contents.major != _DLPACK_MAJOR:
        return None
    address: int | None = exchange.contents.dltensor_from
    return address
