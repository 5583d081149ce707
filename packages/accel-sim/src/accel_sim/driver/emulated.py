# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Emulated drivers: one library for this process, which the loader finds by a driver's name."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from accel_core.native import build
from accel_sim.driver import host_kernels


@cache
def load(soname: str, headers: Path | None = None, flags: tuple[str, ...] = ()) -> Any:
    """Load the drivers, compiled if they are not there yet; from now on `ctypes.CDLL(soname)` returns them.

    Not for processes that use a real driver of this name. headers: folder of the kernels' headers; default: the
    package's. flags: of the compiler, beside the usual ones.
    """
    source = host_kernels.source(headers, (f"-Wl,-soname,{soname}", *flags))
    library: Any = build.load(build.library(source), ctypes.CDLL)
    library.accel_driver_last_stream.restype = ctypes.c_void_p
    library.accel_driver_launches.restype = ctypes.c_uint64
    library.accel_driver_set_architecture.argtypes = [ctypes.c_char_p]
    return library
