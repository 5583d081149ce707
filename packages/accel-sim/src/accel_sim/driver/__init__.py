# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device kernels on the host: the same source as on devices, compiled by g++, a fiber for each thread of a block."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accel_core.native import Source, build
from accel_sim import shared

__all__ = ["HostKernels", "KernelFault", "source"]

SOURCES = Path(__file__).parent / "csrc"
NAME = "accel_host_kernels"
#: Not -O3: the fibers take most of the time.
FLAGS = ("-O1", "-fvisibility=hidden", "-ffp-contract=off")

#: pack(kernel, arguments): the array of pointers to the arguments, and what they point to.
Pack = Callable[[str, tuple[Any, ...]], tuple[Any, Any]]


class KernelFault(RuntimeError):
    """A device would hang or fault: a barrier that not all threads reach, a lane that is not there."""


class HostKernels:
    """The kernels of `shared/csrc`.

    pack: makes C values of the arguments.
    headers: folder of the kernels' headers; default: the package's.
    flags: of the compiler, in addition to the usual ones.
    """

    def __init__(self, pack: Pack, *, headers: Path | None = None, flags: tuple[str, ...] = ()) -> None:
        library: Any = build.load(build.library(source(headers, flags)), ctypes.CDLL)
        library.accel_host_kernels.restype = ctypes.c_char_p
        library.accel_host_launch.restype = ctypes.c_char_p
        library.accel_host_launch.argtypes = [
            ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p,
        ]  # fmt: skip
        self._library, self._pack = library, pack
        #: Names of the kernels that were started.
        self.launched: list[str] = []

    def arguments(self) -> dict[str, list[int]]:
        """Return the bytes of the arguments of each kernel."""
        lines = self._library.accel_host_kernels().decode().splitlines()
        return {name: list(map(int, sizes)) for name, *sizes in map(str.split, lines)}

    def launch(self, name: str, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
        """Run a kernel to its end. Raises `KernelFault`."""
        pointers, _kept = self._pack(name, arguments)
        problem = self._library.accel_host_launch(name.encode(), blocks, threads, pointers)
        if problem:
            raise KernelFault(f"{name}: {problem.decode()}")
        self.launched.append(name)


def source(headers: Path | None = None, flags: tuple[str, ...] = ()) -> Source:
    """Return the sources of the kernels, and of what runs them."""
    folders = SOURCES, headers or shared.folder("csrc") / "include"
    return Source(NAME, tuple(sorted(SOURCES.glob("*.cpp"))), folders=folders, flags=(*FLAGS, *flags))
