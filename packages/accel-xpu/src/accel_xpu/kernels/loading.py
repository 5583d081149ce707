# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The packaged kernels on torch's queues, tried before they are used."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from typing_extensions import override

from accel_core.errors import in_short
from accel_core.op_builder import Implementation
from accel_ops.device import self_checks
from accel_ops.device.driver_kernels import KernelsUnusable
from accel_ops.routes import ARGUMENTS, Kernels, KernelSource, SelfCheck
from accel_xpu.kernels import packaged
from accel_xpu.kernels.shim import Shim, sizes_of

_SIZES = {name: sizes_of(types) for name, types in ARGUMENTS.items()}


class LoadedKernels(Kernels):
    """The kernels of the packaged modules, each built for a device when it is first used there."""

    def __init__(self, shim: Shim, modules: dict[str, bytes]) -> None:
        self._shim, self._modules = shim, modules
        self._kernels: dict[tuple[int, str], int] = {}

    @override
    def start(self, device: int, name: str, blocks: int, threads: int, pointers: Any) -> None:
        queue = queue_of(device)
        if (device, name) not in self._kernels:
            module = self._shim.load(queue, self._modules[name])
            self._kernels[device, name] = self._shim.kernel(module, name)
        self._shim.launch(queue, self._kernels[device, name], blocks, threads, pointers, _SIZES[name])


def load(trial: SelfCheck, device: int) -> tuple[LoadedKernels, str]:
    """Return the kernels, tried on a device, and the name of their implementation. Raises `KernelsUnusable`.

    trial: starts some of them.
    """
    kernels, there = LoadedKernels(Shim(), packaged.modules()), torch.device("xpu", device)
    reason = self_checks.unsupported_reason(
        f"{trial.__module__} (SPIR-V)", there, partial(trial, kernels.launch, there)
    )
    if reason:
        raise KernelsUnusable(reason)
    return kernels, Implementation.SPIRV.value


def queue_of(device: int) -> int:
    """Return the address of torch's current queue (`sycl::queue*`) of a device. Raises `KernelsUnusable`."""
    try:
        return int(torch._C._xpu_getCurrentRawStream(device))
    except AttributeError as error:
        raise KernelsUnusable(f"torch has no queue: {in_short(error)}") from error


SOURCE = KernelSource("xpu", "kernels (SPIR-V)", (Implementation.SPIRV,), load)
