# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which image serves the current device: a packaged one (CUDA), else one compiled here; tried before it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from typing_extensions import override

from accel_core.errors import in_short
from accel_core.op_builder import Implementation
from accel_cuda.kernels import compiled_here, hip, images
from accel_cuda.kernels.driver import DeviceDriver, Driver
from accel_ops.device import self_checks
from accel_ops.device.driver_kernels import KernelsUnusable
from accel_ops.routes import Kernels, KernelSource, SelfCheck

#: Compute capability of a CUDA device, name of the architecture of a ROCm device.
Architecture = tuple[int, int] | str


class CudaKernels(Kernels):
    """The kernels of one image.

    architecture: of the devices that it is used for.
    """

    advice = ": run with CUDA_LAUNCH_BLOCKING=1"

    def __init__(self, driver: DeviceDriver, image: bytes, architecture: Architecture) -> None:
        self._driver, self._image, self._architecture = driver, image, architecture
        self._loaded: dict[int, Any] = {}
        self._kernels: dict[tuple[int, str], Any] = {}

    @override
    def lack(self, tensor: torch.Tensor) -> str:
        index = tensor.device.index
        if _architecture(index) != self._architecture:
            return f"cuda:{index} has another architecture than the device that was current at load"
        return super().lack(tensor)

    @override
    def start(self, device: int, name: str, blocks: int, threads: int, pointers: Any) -> None:
        with self._driver.current(device):
            stream = torch._C._cuda_getCurrentRawStream(device)
            self._driver.launch(self._kernel(device, name), blocks, threads, stream, pointers)

    def _kernel(self, device: int, name: str) -> Any:
        # A library serves all contexts, a module the one in which it was loaded.
        context = -1 if self._driver.has_libraries else device
        key = context, name
        if key not in self._kernels:
            if context not in self._loaded:
                self._loaded[context] = self._driver.load(self._image)
            self._kernels[key] = self._driver.kernel(self._loaded[context], name)
        return self._kernels[key]


def load(trial: SelfCheck, device: int) -> tuple[CudaKernels, str]:
    """Return the kernels for a device, which is the current one, and their name (`image sm_90`).

    trial: starts some of them. Raises `KernelsUnusable` with the reasons of all implementations.
    """
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
)
