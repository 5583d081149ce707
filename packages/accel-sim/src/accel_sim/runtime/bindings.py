# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What torch.cuda and torch.xpu call in torch._C, and a build for the CPU lacks: simulated, or refused by name.

The Python code of these modules is torch's own. What of it is not simulated reaches for a binding that is not there.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NoReturn

import torch

from accel_sim.errors import NotSimulated, raise_not_simulated
from accel_sim.simulation import Simulation

_PREFIXES = {
    "cuda": ("_cuda_", "_cudart", "_Cuda", "_CUDA", "_nccl_", "_cudnn"),
    "xpu": ("_xpu_", "_Xpu", "_XPU"),
}
#: cudaErrorHostMemoryAlreadyRegistered, cudaErrorHostMemoryNotRegistered.
_ALREADY_REGISTERED, _NOT_REGISTERED = 712, 713
_NCCL = 2 << 32 | 27 << 16 | 7  # version 2.27.7


class BindingNotSimulated(NotSimulated, AttributeError):
    """A binding that is not simulated; an AttributeError, because torch asks with hasattr which there are."""


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds; the bindings themselves are added to torch._C."""
    if simulation.type not in _PREFIXES:
        return {}
    binding: Any = torch._C
    binding.__getattr__ = _refusal(_PREFIXES[simulation.type])
    if simulation.type == "xpu":
        return {}
    binding._nccl_version = lambda: _NCCL
    binding._nccl_version_suffix = lambda: b""
    binding._cuda_getCurrentRawStream = _raw_stream(simulation)
    runtime = _Runtime(simulation)
    simulation.module._cudart = runtime  # type: ignore[attr-defined]
    return {"cudart": lambda: runtime, "get_allocator_backend": lambda: "native"}


def _raw_stream(simulation: Simulation) -> Any:
    def current_raw_stream(device: int) -> int:
        """Return the handle of the current stream, for a kernel that is started on it by the driver."""
        # Work of torch on a stream first carries out the copies that are deferred there; the driver's does not.
        torch.zeros((), device=torch.device(simulation.type, device))
        return int(simulation.simulated["current_stream"](device).native_handle)

    return current_raw_stream


def _refusal(prefixes: tuple[str, ...]) -> Any:
    def __getattr__(name: str) -> NoReturn:
        if not name.startswith(prefixes):
            raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
        raise BindingNotSimulated(
            what=f"{_caller(sys._getframe(1))} is not simulated",
            found=f"a call of it on a simulated device; it needs torch._C.{name}",
            expected="a name that the simulation implements: docs/simulated-devices.md lists them",
            do="run this part on the real device, or add it to accel_sim",
        )

    return __getattr__


def _caller(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', 'torch')}.{frame.f_code.co_name}"


class HostRegistrations:
    """Host memory that a program registers with the driver: each range once, and undone by its first address."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._ranges: dict[int, int] = {}

    def register(self, address: int, size: int, refusal: int) -> int:
        """Page-lock a range; returns 0, or `refusal` if part of it is registered."""
        if size < 1 or any(begin < address + size and address < end for begin, end in self._ranges.items()):
            return refusal
        self._ranges[address] = address + size
        return int(self._native.register_host(address, size))

    def unregister(self, address: int, refusal: int) -> int:
        """Undo `register`; returns 0, or `refusal` if no range begins there."""
        if self._ranges.pop(address, None) is None:
            return refusal
        return int(self._native.unregister_host(address))


class _Runtime:
    """The CUDA runtime, as `torch.cuda.cudart()` offers it."""

    class cudaError(int):
        """Error codes."""

        success = 0

    def __init__(self, simulation: Simulation) -> None:
        self._hosts = HostRegistrations(simulation.native)

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        """Return free and total bytes."""
        free, total = torch.accelerator.get_memory_info(device)
        return free, total

    def cudaHostRegister(self, address: int, size: int, _flags: int = 0) -> int:
        """Page-lock host memory."""
        return self._hosts.register(address, size, _ALREADY_REGISTERED)

    def cudaHostUnregister(self, address: int) -> int:
        """Undo `cudaHostRegister`."""
        return self._hosts.unregister(address, _NOT_REGISTERED)

    def cudaDeviceSynchronize(self) -> int:
        """Wait for the current device."""
        torch.accelerator.synchronize()
        return 0

    def cudaProfilerStart(self) -> int:
        """Do nothing: there is no profiler."""
        return 0

    cudaProfilerStop = cudaProfilerStart

    def cudaGetErrorString(self, code: int) -> str:
        """Return the text of an error code."""
        return "no error" if code == 0 else f"error {code}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise_not_simulated(f"torch.cuda.cudart().{name}")

        return absent
