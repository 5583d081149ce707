# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Drivers by ctypes: load an image, start its kernels. What those of CUDA and ROCm share, and CUDA's."""

from __future__ import annotations

import contextlib
import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from accel_ops.device.driver_kernels import KernelsUnusable

HANDLE = ctypes.c_void_p
#: Of a launch: kernel, blocks and threads in three dimensions, shared memory, stream, arguments, others.
LAUNCH: list[Any] = [HANDLE, *[ctypes.c_uint] * 7, HANDLE, HANDLE, HANDLE]


class DeviceDriver(ABC):
    """Loads images and starts their kernels. Each function raises `KernelsUnusable` with the driver's error."""

    def __init__(self, library: Any) -> None:
        self._library = library

    #: Whether an image is loaded once for all devices; else once for each.
    has_libraries = False

    @abstractmethod
    def current(self, device: int) -> contextlib.AbstractContextManager[None]:
        """Make a device current in this thread."""

    @abstractmethod
    def load(self, image: bytes) -> Any:
        """Return the loaded image; without `has_libraries` for the current device alone."""

    @abstractmethod
    def kernel(self, loaded: Any, name: str) -> Any:
        """Return a kernel of a loaded image."""

    @abstractmethod
    def launch(self, kernel: Any, blocks: int, threads: int, stream: int, pointers: Any) -> None:
        """Start a kernel on the current device."""

    @abstractmethod
    def error_name(self, status: int) -> str:
        """Return the driver's name of an error; empty if it has none."""

    def declare(self, functions: dict[str, list[Any]]) -> None:
        """Tell ctypes the arguments of functions. Raises AttributeError if one is missing."""
        for name, arguments in functions.items():
            getattr(self._library, name).argtypes = arguments

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns 0 if it succeeds."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise KernelsUnusable(
                f"{name} returns {self.error_name(status) or 'an unknown error'} ({status})"
            )


LIBRARY = "libcuda.so.1"
#: From here on an image is loaded once for all contexts.
_LIBRARIES_SINCE = 12000
_ARGUMENTS: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuDriverGetVersion": [ctypes.POINTER(ctypes.c_int)],
    "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(HANDLE), ctypes.c_int],
    "cuCtxGetCurrent": [ctypes.POINTER(HANDLE)],
    "cuCtxPushCurrent_v2": [HANDLE],
    "cuCtxPopCurrent_v2": [ctypes.POINTER(HANDLE)],
    "cuModuleLoadData": [ctypes.POINTER(HANDLE), ctypes.c_char_p],
    "cuModuleGetFunction": [ctypes.POINTER(HANDLE), HANDLE, ctypes.c_char_p],
    "cuLaunchKernel": LAUNCH,
    "cuGetErrorName": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
}
_LIBRARY_ARGUMENTS: dict[str, list[Any]] = {
    "cuLibraryLoadData": [
        ctypes.POINTER(HANDLE), ctypes.c_char_p, HANDLE, HANDLE, ctypes.c_uint, HANDLE, HANDLE, ctypes.c_uint,
    ],
    "cuLibraryGetKernel": [ctypes.POINTER(HANDLE), HANDLE, ctypes.c_char_p],
}  # fmt: skip


class Driver(DeviceDriver):
    """The driver of this machine. Raises `KernelsUnusable` if there is none, or one that cannot be used."""

    def __init__(self) -> None:
        try:
            super().__init__(ctypes.CDLL(LIBRARY))
            self.declare(_ARGUMENTS)
            self.call("cuInit", 0)
            version = ctypes.c_int()
            self.call("cuDriverGetVersion", ctypes.byref(version))
            self.version = version.value
            self.has_libraries = self.version >= _LIBRARIES_SINCE
            if self.has_libraries:
                self.declare(_LIBRARY_ARGUMENTS)
        except (OSError, AttributeError) as error:
            raise KernelsUnusable(f"no usable driver {LIBRARY}: {error}") from error
        self._contexts: dict[int, HANDLE] = {}

    @override
    @contextlib.contextmanager
    def current(self, device: int) -> Iterator[None]:
        # The primary context, which torch uses, too. A thread of autograd may have none, or that of another device.
        wanted, found = self._context(device), HANDLE()
        self.call("cuCtxGetCurrent", ctypes.byref(found))
        if found.value == wanted.value:
            yield
            return
        self.call("cuCtxPushCurrent_v2", wanted)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(found))

    @override
    def load(self, image: bytes) -> Any:
        loaded = HANDLE()
        if self.has_libraries:
            self.call("cuLibraryLoadData", ctypes.byref(loaded), image, None, None, 0, None, None, 0)
        else:
            self.call("cuModuleLoadData", ctypes.byref(loaded), image)
        return loaded

    @override
    def kernel(self, loaded: Any, name: str) -> Any:
        found = HANDLE()
        get = "cuLibraryGetKernel" if self.has_libraries else "cuModuleGetFunction"
        self.call(get, ctypes.byref(found), loaded, name.encode())
        return found

    @override
    def launch(self, kernel: Any, blocks: int, threads: int, stream: int, pointers: Any) -> None:
        self.call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, None)

    def _context(self, device: int) -> Any:
        if device not in self._contexts:
            ordinal, context = ctypes.c_int(), HANDLE()
            self.call("cuDeviceGet", ctypes.byref(ordinal), device)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal.value)
            self._contexts[device] = context
        return self._contexts[device]

    @override
    def error_name(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(text))
        return (text.value or b"").decode()
