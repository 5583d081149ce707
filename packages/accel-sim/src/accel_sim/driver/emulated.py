# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Emulated drivers: one library for this process, which the loader finds by a driver's name."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from accel_core.native import build
from accel_sim.driver import source

#: By these names the loader finds a library that the process has, before it looks for files. HIP has hipRTC in it, as
#: up to ROCm 5.
LIBCUDA, LIBHIP = "libcuda.so.1", "libamdhip64.so.6"
_ELF_HEADER, _CUDA = struct.Struct("<4s12xHHIQQQIHHHHHH"), 190


@cache
def load(soname: str, headers: Path | None = None, flags: tuple[str, ...] = ()) -> Any:
    """Load the drivers, compiled if they are not there yet; from now on `ctypes.CDLL(soname)` returns them.

    Not for processes that use a real driver of this name. headers: folder of the kernels' headers; default: the
    package's. flags: of the compiler, in addition to the usual ones.
    """
    sources = source(headers, (f"-Wl,-soname,{soname}", *flags))
    library: Any = build.load(build.library(sources), ctypes.CDLL)
    library.accel_driver_last_stream.restype = ctypes.c_void_p
    library.accel_driver_launches.restype = ctypes.c_uint64
    library.accel_driver_set_architecture.argtypes = [ctypes.c_char_p]
    return library


def stand_in(architecture: int, kernels: Iterable[str]) -> bytes:
    """Return what the driver takes for a cubin of this architecture (90) with these kernels; it has no code."""
    names = b"\0".join(name.encode() for name in kernels) + b"\0"
    end = _ELF_HEADER.size + len(names)
    header = _ELF_HEADER.pack(
        b"\x7fELF", 2, _CUDA, 1, 0, 0, end, architecture, _ELF_HEADER.size, 0, 0, 64, 0, 0
    )
    return header + names
