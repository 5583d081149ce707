# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""libsycl by ctypes, through the shim for the version that this process has: load SPIR-V, start its kernels."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from accel_ops.device.driver_kernels import KernelsUnusable
from accel_xpu.kernels import packaged

#: The files that this process has mapped.
MAPS = Path("/proc/self/maps")
_LIBSYCL = re.compile(r"/libsycl\.so\.(?P<major>\d+)(?:\.\d+)*(?: \(deleted\))?$", re.MULTILINE)
#: What the SYCL compiler puts before the name of a kernel.
_PREFIX = "__sycl_kernel_"


class Shim:
    """The shim. Raises `KernelsUnusable` if this process has no libsycl that one is for, or if it does not load."""

    def __init__(self) -> None:
        path = packaged.shim(held())
        try:
            self._library: Any = ctypes.CDLL(str(path))
            self._library.accel_sycl_problem.restype = ctypes.c_char_p
            for name in ("accel_sycl_load", "accel_sycl_kernel"):
                getattr(self._library, name).restype = ctypes.c_void_p
            self._library.accel_sycl_load.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
            self._library.accel_sycl_kernel.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
            self._library.accel_sycl_launch.argtypes = [
                ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p,
                ctypes.c_uint32,
            ]  # fmt: skip
        except (OSError, AttributeError) as error:
            raise KernelsUnusable(f"the shim {path.name} does not load: {error}") from error

    def load(self, queue: int, module: bytes) -> int:
        """Return the handle of a SPIR-V module, built for the device of a queue."""
        return self._must(self._library.accel_sycl_load(queue, module, len(module)), "a module of SPIR-V")

    def kernel(self, bundle: int, name: str) -> int:
        """Return the handle of a kernel in a module."""
        return self._must(self._library.accel_sycl_kernel(bundle, f"{_PREFIX}{name}".encode()), name)

    def launch(self, queue: int, kernel: int, groups: int, items: int, pointers: Any, sizes: Any) -> None:
        """Start a kernel. sizes: what `sizes_of` says of the arguments that `pointers` point to."""
        if self._library.accel_sycl_launch(queue, kernel, groups, items, pointers, sizes, len(sizes)):
            raise KernelsUnusable(f"libsycl does not start a kernel: {self._problem()}")

    def _must(self, handle: int | None, what: str) -> int:
        if not handle:
            raise KernelsUnusable(f"libsycl does not load {what}: {self._problem()}")
        return handle

    def _problem(self) -> str:
        text: bytes = self._library.accel_sycl_problem()
        return " ".join(text.decode(errors="replace").split())[:300]


def held() -> str:
    """Return the major version of the libsycl that this process has, which is torch's. Raises `KernelsUnusable`.

    A shim loads none itself: a queue of one libsycl in the hands of another would end the process.
    """
    try:
        found = sorted({match["major"] for match in _LIBSYCL.finditer(MAPS.read_text(errors="replace"))})
    except OSError as error:
        raise KernelsUnusable(f"which libsycl this process has cannot be read: {error}") from error
    if not found:
        raise KernelsUnusable("this process has no libsycl: this torch is not built for XPU")
    if len(found) > 1:
        names = " and ".join(f"libsycl.so.{major}" for major in found)
        raise KernelsUnusable(f"this process has {names}, and torch's queues belong to one of them")
    return found[0]


def sizes_of(types: tuple[Any, ...]) -> Any:
    """Return a number for each type: 0 for a pointer, else its bytes."""
    sizes = [0 if kind is ctypes.c_void_p else ctypes.sizeof(kind) for kind in types]
    return (ctypes.c_uint32 * len(sizes))(*sizes)
