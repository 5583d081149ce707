# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the drivers of CUDA and ROCm have in common: functions by ctypes that return a status; images and kernels."""

from __future__ import annotations

import contextlib
import ctypes
from abc import ABC, abstractmethod
from typing import Any

from accel_ops.device_kernels import KernelsUnusable

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
