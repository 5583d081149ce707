# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Queries of NVIDIA's management library, which need no CUDA context on the device.

Uses the optional package nvidia-ml-py. Functions return None if the library is missing or fails.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

from accel_cuda import visible


def free_memory(index: int) -> int | None:
    """Return the free memory of a device in bytes, given the use of all processes."""
    free: int | None = _query(index, lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).free))
    return free


def capability(index: int) -> tuple[int, int] | None:
    """Return the compute capability of a device, major and minor."""
    found: tuple[int, int] | None = _query(
        index, lambda nvml, handle: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))
    )
    return found


def _query(index: int, query: Callable[[Any, Any], Any]) -> Any:
    entry = visible.entry(index)
    nvml = None if entry is None else _library(os.getpid())
    if nvml is None:
        return None
    try:
        return query(nvml, _handle(nvml, entry))
    except Exception:  # NVMLError; anything from the libraries of this name that other makers install
        return None


def _handle(nvml: Any, entry: int | str | None) -> Any:
    if isinstance(entry, str) and entry.startswith("GPU-"):
        # CUDA accepts a prefix of a UUID, the library only the complete one.
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        same = [handle for handle in handles if nvml.nvmlDeviceGetUUID(handle).startswith(entry)]
        if len(same) == 1:
            return same[0]
    if isinstance(entry, str):
        return nvml.nvmlDeviceGetHandleByUUID(entry)
    return nvml.nvmlDeviceGetHandleByIndex(entry)


@functools.cache
def _library(process: int) -> Any:
    """Return the library, initialized in this process (again after a fork); None if not installed."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        return None
    return nvml
