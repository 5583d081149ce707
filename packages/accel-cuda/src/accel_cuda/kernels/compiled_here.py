# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Images that torch's NVRTC or hipRTC makes on this machine, once, into the cache of native libraries."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from accel_core.errors import AccelError, in_short
from accel_core.op_builder.native import NativeSource, build_library, load_library
from accel_cuda.kernels import hip, rtc
from accel_ops.device.driver_kernels import KernelsUnusable

#: Packages that bring torch's NVRTC.
_PACKAGES = ("nvidia.cuda_nvrtc", "nvidia.cu13", "nvidia.cu12")
ENTRY = "accel/kernels.h"
_PACKAGED = Path(__file__).parent / "images" / "accel.cu"
_HEADERS = Path(__file__).parents[5] / "shared/csrc/include"


def image_for(capability: tuple[int, int]) -> tuple[str, bytes]:
    """Return name and contents of an image for a CUDA device. Raises `KernelsUnusable`."""
    library = _library()
    if library is None:
        raise KernelsUnusable("no NVRTC next to torch")
    return _image(rtc.NVRTC, library, f"sm_{capability[0]}{capability[1]}")


def hip_image_for(architecture: str) -> tuple[str, bytes]:
    """Return name and contents of an image for a ROCm device (`gfx90a:sramecc+:xnack-`). Raises `KernelsUnusable`."""
    return _image(rtc.HIPRTC, hip.compiler(), architecture)


def _image(compiler: rtc.Compiler, library: Path, target: str) -> tuple[str, bytes]:
    unit = _PACKAGED if _PACKAGED.is_file() else _HEADERS / ENTRY
    if not unit.is_file():
        raise KernelsUnusable("no source of kernels in this install of accel-cuda")
    flags = *compiler.options, target, f"{library.name}", _build_of(library)
    source = NativeSource(f"accel_cuda_{target.replace(':', '_')}", (unit,), flags=flags)

    def compile_image(_source: NativeSource, file: Path) -> None:
        text = _PACKAGED.read_text("utf-8") if unit == _PACKAGED else rtc.flattened(ENTRY, _HEADERS)
        file.write_bytes(rtc.compiled(compiler, library, text, target))

    try:
        path = build_library(source, compile_image)
        return target, load_library(path, lambda name: Path(name).read_bytes())
    except (AccelError, OSError, RuntimeError) as error:
        raise KernelsUnusable(f"{compiler.prefix} makes no image for {target}: {in_short(error)}") from error


def _library() -> Path | None:
    """Return NVRTC's path; None if no package has it."""
    for package in _PACKAGES:
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            found = [path for path in Path(folder, "lib").glob("libnvrtc.so.*") if ".alt." not in path.name]
            if found:
                return min(found)
    return None


def _build_of(library: Path) -> str:
    if not library.is_absolute():
        return f"torch {torch.__version__}"
    status = library.stat()
    return f"{status.st_size}:{status.st_mtime_ns}"
