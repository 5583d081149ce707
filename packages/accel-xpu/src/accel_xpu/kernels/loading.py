# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The packaged kernels on torch's queues, tried before they are used."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from accel_core.errors import in_short
from accel_core.op_builder import Implementation
from accel_ops.device import self_checks
from accel_ops.device.driver_kernels import KernelNotStarted, KernelsUnusable, MemoizedLoader
from accel_ops.routes import ARGUMENTS, KernelSource, SelfCheck, packed_arguments
from accel_xpu.kernels import packaged
from accel_xpu.kernels.shim import Shim, sizes_of

_SIZES = {name: sizes_of(types) for name, types in ARGUMENTS.items()}


class LoadedKernels:
    """The kernels of the packaged modules, each built for a device when it is first used there."""

    def __init__(self, shim: Shim, modules: dict[str, bytes]) -> None:
        self._shim, self._modules = shim, modules
        self._kernels: dict[tuple[int | None, str], int] = {}

    def lack(self, tensor: torch.Tensor) -> str:
        """Return why a tensor's device is left to plain torch at the moment; empty if it is not."""
        # Graph replay is untested; fall back while capturing.
        return "a graph is being captured" if capturing() else ""

    def launch(self, name: str, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
        """Start a kernel on torch's current queue of the first argument's device. Raises `KernelNotStarted`."""
        device = arguments[0].device.index
        pointers, _kept = packed_arguments(name, arguments)
        try:
            queue = queue_of(device)
            kernel = self._kernel(device, queue, name)
            self._shim.launch(queue, kernel, blocks, threads, pointers, _SIZES[name])
        except KernelsUnusable as error:
            raise KernelNotStarted(
                f"{name} cannot be started on xpu:{device}: {error}",
                do=(
                    "an error of an earlier kernel shows here, too. Without these kernels: turn the quantization "
                    "(zero_quantized_weights, zero_quantized_gradients) off, and use torch's optimizers "
                    '(`"torch_adam": true`)'
                ),
            ) from error

    def _kernel(self, device: int | None, queue: int, name: str) -> int:
        found = self._kernels.get((device, name))
        if found is None:
            module = self._shim.load(queue, self._modules[name])
            found = self._kernels[device, name] = self._shim.kernel(module, name)
        return found


def load(trial: SelfCheck) -> tuple[LoadedKernels, str]:
    """Return the kernels, tried on the current device, and the name of their implementation. Raises `KernelsUnusable`.

    trial: starts some of them.
    """
    if not torch.xpu.is_available():
        raise KernelsUnusable("no device")
    try:
        device = torch.xpu.current_device()
    except RuntimeError as error:
        raise KernelsUnusable(in_short(error)) from error
    return tried(trial, device), Implementation.SPIRV.value


@MemoizedLoader
def tried(trial: SelfCheck, device: int) -> LoadedKernels:
    """Return the kernels, tried on a device, once a process. Raises `KernelsUnusable`."""
    kernels, there = LoadedKernels(Shim(), packaged.modules()), torch.device("xpu", device)
    reason = self_checks.unsupported_reason(
        f"{trial.__module__} (SPIR-V)", there, partial(trial, kernels.launch, there)
    )
    if reason:
        raise KernelsUnusable(reason)
    return kernels


def queue_of(device: int) -> int:
    """Return the address of torch's current queue (`sycl::queue*`) of a device. Raises `KernelsUnusable`."""
    try:
        return int(torch._C._xpu_getCurrentRawStream(device))
    except AttributeError as error:
        raise KernelsUnusable(f"torch has no queue: {str(error).partition(chr(10))[0]}") from error


def capturing() -> bool:
    """Return whether a graph is being captured."""
    capturing = getattr(torch.xpu, "is_current_stream_capturing", None)  # from torch 2.10 on
    return bool(capturing()) if capturing else False


SOURCE = KernelSource("xpu", "kernels (SPIR-V)", (Implementation.SPIRV,), load, capturing)
