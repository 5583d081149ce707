# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""An emulated `libcuda` for this process, and stand-ins for the images that it loads."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from accel_sim.driver import emulated

#: By this name the loader finds a library that the process has, before it looks for files.
SONAME = "libcuda.so.1"
_ELF_HEADER, _CUDA = struct.Struct("<4s12xHHIQQQIHHHHHH"), 190


def load(headers: Path | None = None, flags: tuple[str, ...] = ()) -> Any:
    """Load the driver, as `emulated.load`."""
    return emulated.load(SONAME, headers, flags)


def stand_in(architecture: int, kernels: Iterable[str]) -> bytes:
    """Return what the driver takes for a cubin of this architecture (90) with these kernels; it has no code."""
    names = b"\0".join(name.encode() for name in kernels) + b"\0"
    end = _ELF_HEADER.size + len(names)
    header = _ELF_HEADER.pack(
        b"\x7fELF", 2, _CUDA, 1, 0, 0, end, architecture, _ELF_HEADER.size, 0, 0, 64, 0, 0
    )
    return header + names
