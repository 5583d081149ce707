# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ROCm: HIP's runtime and hipRTC by ctypes, those that torch uses."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typing_extensions import override

from accel_cuda.kernels.driver import HANDLE, LAUNCH, DeviceDriver
from accel_ops.device.driver_kernels import KernelsUnusable

#: Names that ROCm's releases have, if the process does not hold the library yet.
RUNTIMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
COMPILERS = ("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so")
_MAPS = Path("/proc/self/maps")
_ARGUMENTS: dict[str, list[Any]] = {
    "hipInit": [ctypes.c_uint],
    "hipGetDevice": [ctypes.POINTER(ctypes.c_int)],
    "hipSetDevice": [ctypes.c_int],
    "hipModuleLoadData": [ctypes.POINTER(HANDLE), ctypes.c_char_p],
    "hipModuleGetFunction": [ctypes.POINTER(HANDLE), HANDLE, ctypes.c_char_p],
    "hipModuleLaunchKernel": LAUNCH,
    "hipGetErrorName": [ctypes.c_int],
}


class Runtime(DeviceDriver):
    """HIP's runtime. A module is loaded for the current device. Raises `KernelsUnusable` if there is none."""

    def __init__(self) -> None:
        try:
            super().__init__(ctypes.CDLL(_found("libamdhip64.so", RUNTIMES)))
            self.declare(_ARGUMENTS)
            self._library.hipGetErrorName.restype = ctypes.c_char_p
            self.call("hipInit", 0)
        except (OSError, AttributeError) as error:
            raise KernelsUnusable(f"no usable HIP runtime: {error}") from error

    @override
    @contextlib.contextmanager
    def current(self, device: int) -> Iterator[None]:
        found = ctypes.c_int()
        self.call("hipGetDevice", ctypes.byref(found))
        if found.value == device:
            yield
            return
        self.call("hipSetDevice", device)
        try:
            yield
        finally:
            self.call("hipSetDevice", found.value)

    @override
    def load(self, image: bytes) -> Any:
        loaded = HANDLE()
        self.call("hipModuleLoadData", ctypes.byref(loaded), image)
        return loaded

    @override
    def kernel(self, loaded: Any, name: str) -> Any:
        found = HANDLE()
        self.call("hipModuleGetFunction", ctypes.byref(found), loaded, name.encode())
        return found

    @override
    def launch(self, kernel: Any, blocks: int, threads: int, stream: int, pointers: Any) -> None:
        self.call("hipModuleLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, None)

    @override
    def error_name(self, status: int) -> str:
        return (self._library.hipGetErrorName(status) or b"").decode()


def compiler() -> Path:
    """Return the library that has hipRTC; its path if it is known. Raises `KernelsUnusable` if there is none."""
    runtime = _found("libamdhip64.so", RUNTIMES)
    neighbours = sorted(Path(runtime).parent.glob("libhiprtc.so*")) if Path(runtime).is_absolute() else []
    for name in (*_held("libhiprtc.so"), *map(str, neighbours), *COMPILERS, runtime):
        with contextlib.suppress(OSError):
            if hasattr(ctypes.CDLL(name), "hiprtcCreateProgram"):  # the runtime itself has it up to ROCm 5
                return Path(name)
    raise KernelsUnusable("no hipRTC next to torch's HIP runtime")


def _found(name: str, others: tuple[str, ...]) -> str:
    """Return the library that the process holds: torch's own. Else the first of others that can be loaded."""
    for candidate in (*_held(name), *others):
        with contextlib.suppress(OSError):
            ctypes.CDLL(candidate)
            return candidate
    raise KernelsUnusable(f"no {name}")


def _held(name: str) -> list[str]:
    """Return the paths of mapped libraries whose name begins so."""
    try:
        lines = _MAPS.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = {fields[5] for fields in (line.split(maxsplit=5) for line in lines) if len(fields) == 6}
    return sorted(path for path in paths if path.startswith("/") and Path(path).name.startswith(name))
