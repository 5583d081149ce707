# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The source to an image, by NVRTC or hipRTC. It imports nothing of ours: the build of the wheel uses it, too."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, NamedTuple


class Compiler(NamedTuple):
    """A compiler at run time, of those that have NVRTC's interface.

    prefix: of its functions. target: the option that names what to compile for.
    """

    prefix: str
    options: tuple[str, ...]
    target: str


#: No contraction of a * b + c: all devices compute the same bits.
NVRTC = Compiler("nvrtc", ("--std=c++17", "--fmad=false", "-default-device"), "--gpu-architecture")
HIPRTC = Compiler("hiprtc", ("-std=c++17", "-ffp-contract=off"), "--offload-arch")
#: By the beginning of a target, what the function that returns its image is called after.
_IMAGES = {"sm_": "CUBIN", "compute_": "PTX", "gfx": "Code"}
_INCLUDE = re.compile(r'\s*#include "(?P<name>[^"]+)"')


def flattened(entry: str, headers: Path) -> str:
    """Return a header with all that it includes from the folder in their places, once each.

    Lines for other compilers' headers (`<sycl/…>`) stay; NVRTC does not come to them.
    """
    seen: set[str] = set()

    def lines(name: str) -> list[str]:
        if name in seen:
            return []
        seen.add(name)
        made: list[str] = []
        for line in (headers / name).read_text("utf-8").splitlines():
            match = _INCLUDE.match(line)
            if match:
                made += lines(match["name"])
            elif line.strip() != "#pragma once":
                made.append(line)
        return made

    return "\n".join(lines(entry)) + "\n"


def compiled(compiler: Compiler, library: Path, source: str, target: str) -> bytes:
    """Return the image for `sm_90` (a cubin), `compute_75` (PTX) or `gfx90a`.

    Raises OSError, and RuntimeError with the log.
    """
    # From CUDA 13 on NVRTC looks for it by name alone.
    for builtins in sorted(library.parent.glob("libnvrtc-builtins.so.*")) if library.is_absolute() else ():
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
    functions = _Functions(ctypes.CDLL(str(library)), compiler.prefix)
    program = ctypes.c_void_p()
    if functions.call("CreateProgram", ctypes.byref(program), source.encode(), b"accel.cu", 0, None, None):
        raise RuntimeError(f"{compiler.prefix} makes no program")
    try:
        options = [f"{compiler.target}={target}".encode(), *(option.encode() for option in compiler.options)]
        if functions.call(
            "CompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options)
        ):
            raise RuntimeError(
                functions.result(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")[:2000]
            )
        return functions.result(
            program, next(kind for start, kind in _IMAGES.items() if target.startswith(start))
        )
    finally:
        functions.call("DestroyProgram", ctypes.byref(program))


class _Functions:
    def __init__(self, library: Any, prefix: str) -> None:
        self._library, self._prefix = library, prefix

    def call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, self._prefix + name)(*arguments))

    def result(self, program: Any, what: str) -> bytes:
        size = ctypes.c_size_t()
        if self.call(f"Get{what}Size", program, ctypes.byref(size)):
            raise RuntimeError(f"{self._prefix} has no {what}")
        content = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, content)
        return content.raw
