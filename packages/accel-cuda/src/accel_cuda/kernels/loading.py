# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which image serves the current device: a packaged one (CUDA), else one compiled here; tried before it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from accel_core.errors import in_short
from accel_core.op_builder import Implementation
from accel_cuda.kernels import compiled_here, hip, images
from accel_cuda.kernels.driver import DeviceDriver, Driver
from accel_ops.device import self_checks
from accel_ops.device.driver_kernels import KernelNotStarted, KernelsUnusable, MemoizedLoader
from accel_ops.routes import KernelSource, SelfCheck, packed_arguments

#: Compute capability of a CUDA device, name of the architecture of a ROCm device.
Architecture = tuple[int, int] | str


class CudaKernels:
    """The kernels of one image.

    architecture: of the devices that it is used for.
    """

    def __init__(self, driver: DeviceDriver, image: bytes, architecture: Architecture) -> None:
        self._driver, self._image, self._architecture = driver, image, architecture
        self._loaded: dict[int, Any] = {}
        self._kernels: dict[tuple[int, str], Any] = {}

    def lack(self, tensor: torch.Tensor) -> str:
        """Return why a tensor's device is left to plain torch at the moment; empty if it is not."""
        index = tensor.device.index
        if _architecture(index) != self._architecture:
            return f"cuda:{index} has another architecture than the device that was current at load"
        # Graph replay is untested; fall back while capturing.
        return "a graph is being captured" if capturing() else ""

    def launch(self, name: str, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
        """Start a kernel on torch's current stream of the first argument's device. Raises `KernelNotStarted`."""
        device = arguments[0].device.index
        pointers, _kept = packed_arguments(name, arguments)
        try:
            with self._driver.current(device):
                stream = torch._C._cuda_getCurrentRawStream(device)
                self._driver.launch(self._kernel(device, name), blocks, threads, stream, pointers)
        except KernelsUnusable as error:
            raise KernelNotStarted(
                f"{name} cannot be started on cuda:{device}: {error}",
                do=(
                    "an error of an earlier kernel shows here, too: run with CUDA_LAUNCH_BLOCKING=1. Without these "
                    "kernels: turn quantization (zero_quantized_weights, zero_quantized_gradients) off, and use "
                    'optimizers of torch (`"torch_adam": true`)'
                ),
            ) from error

    def _kernel(self, device: int, name: str) -> Any:
        # A library serves all contexts, a module the one in which it was loaded.
        context = -1 if self._driver.has_libraries else device
        key = context, name
        if key not in self._kernels:
            if context not in self._loaded:
                self._loaded[context] = self._driver.load(self._image)
            self._kernels[key] = self._driver.kernel(self._loaded[context], name)
        return self._kernels[key]


def load(trial: SelfCheck) -> tuple[CudaKernels, str]:
    """Return the kernels for the current device, and their name (`image sm_90`); tried once a process and device.

    trial: starts some of them. Raises `KernelsUnusable` with the reasons of all implementations.
    """
    if not torch.cuda.is_available():
        raise KernelsUnusable("no device")
    return tried(trial, torch.cuda.current_device())


@MemoizedLoader
def tried(trial: SelfCheck, device: int) -> tuple[CudaKernels, str]:
    """Return the kernels for a device, which is the current one, and their name. Raises `KernelsUnusable`."""
    try:
        architecture = _architecture(device)
    except (RuntimeError, AttributeError) as error:
        raise KernelsUnusable(f"unknown architecture: {error}") from error
    driver: DeviceDriver = hip.Runtime() if torch.version.hip else Driver()
    there, reasons = torch.device("cuda", device), []
    for route, image_for in _routes().items():
        try:
            name, image = image_for(architecture)
        except (KernelsUnusable, RuntimeError) as error:
            reasons.append(in_short(error))
            continue
        kernels = CudaKernels(driver, image, architecture)
        reason = self_checks.unsupported_reason(
            f"{trial.__module__} ({route} {name})", there, partial(trial, kernels.launch, there)
        )
        if not reason:
            return kernels, f"{route} {name}"
        reasons.append(f"{route.rstrip(':')}: {reason}")
    raise KernelsUnusable("; ".join(reasons))


def capturing() -> bool:
    """Return whether a graph is being captured."""
    return bool(torch.cuda.is_current_stream_capturing())


def _routes() -> dict[str, Callable[[Any], tuple[str, bytes]]]:
    if torch.version.hip:
        return {"compiled here:": compiled_here.hip_image_for}
    return {"image": images.image_for, "compiled here:": compiled_here.image_for}


@cache
def _architecture(device: int) -> Architecture:
    if torch.version.hip:
        return str(torch.cuda.get_device_properties(device).gcnArchName)
    return torch.cuda.get_device_capability(device)


SOURCE = KernelSource(
    "cuda",
    "kernels (image, else compiled here)",
    (Implementation.IMAGE, Implementation.COMPILED),
    load,
    capturing,
)
