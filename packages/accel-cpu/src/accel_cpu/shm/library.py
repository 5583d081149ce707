# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The extension module of the collectives (csrc/python.cpp): of the wheel, or compiled here."""

from __future__ import annotations

import dataclasses
import functools
import sysconfig
import threading
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import torch  # first: the module then uses the OpenMP runtime that torch has loaded

from accel_core.op_builder import native

_NAME = "accel_shm"
_PACKAGE = Path(__file__).parents[1]
PREBUILT = _PACKAGE / "lib" / f"lib{_NAME}.so"

BARRIER, ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, REDUCE = range(1, 8)
OK, MISMATCH, DEAD, TIMEOUT, INTERRUPTED, LEFT, HOST_LOST, HOST_DIFFERS = range(8)

#: Those of csrc/accel_shm.h, in its order.
REDUCIBLE = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64,
    torch.int32, torch.int64, torch.int8, torch.uint8,
)  # fmt: skip
_OTHERS = sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)} - {*REDUCIBLE}, key=str)
#: The number of each dtype in a request.
DTYPES = {dtype: index for index, dtype in enumerate([*REDUCIBLE, *_OTHERS])}


def source() -> native.NativeSource:
    """Return the packaged sources; in an editable install, those of the checkout."""
    found = native.NativeSource.of_package(_NAME, _PACKAGE)
    return dataclasses.replace(found, flags=(*found.flags, f"-I{sysconfig.get_path('include')}"))


@functools.cache
def load() -> Any:
    """Return the module; raises `BuildFailed`, `CacheUnusable`, ImportError or OSError."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise OSError("the interpreter has no GIL")  # whose stable interface is another one
    if PREBUILT.is_file():
        module = _open(str(PREBUILT))
    else:
        module = native.load_library(native.build_library(source()), _open)
    numbers = {dtype: DTYPES[dtype] for dtype in REDUCIBLE}
    module.setup(numbers, torch.Tensor, torch.nn.Parameter, threading.main_thread().is_alive)
    return module


def _open(path: str) -> Any:
    loader = ExtensionFileLoader(_NAME, path)
    module = module_from_spec(ModuleSpec(_NAME, loader, origin=path))
    loader.exec_module(module)
    return module
