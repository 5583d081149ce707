# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Particulars of each vendor's module: torch's bindings of cuda and xpu, npu's options, hpu's one device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from accel_sim.errors import NotSimulated, absent, raise_not_simulated
from accel_sim.runtime.device import Indices, statistics
from accel_sim.simulation import Simulation


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names whose behaviour is the vendor's own; they replace those of the other modules."""
    override = {"npu": _npu, "hpu": _hpu, "xpu": _xpu, "mps": _mps, "supa": _supa}.get(simulation.type)
    ranges = {"range_push": _nothing, "range_pop": _nothing, "mark": _nothing}
    emulation = {"is_bf16_supported": lambda including_emulation=True: simulation.devices > 0}
    asked = emulation if simulation.type in ("npu", "xpu", "cuda", "supa") else {}
    return {**ranges, **asked, **(override(simulation) if override else {})}


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """Do nothing: there is no profiler to mark ranges for."""


def _xpu(simulation: Simulation) -> dict[str, Any]:
    def get_device_capability(device: Any = None) -> dict[str, Any]:
        return dict(vars(simulation.simulated["get_device_properties"](device)))

    return {"get_device_capability": get_device_capability}


def _mps(simulation: Simulation) -> dict[str, Any]:
    def used() -> int:
        return int(torch.accelerator.memory_allocated())

    def limit_memory(fraction: float) -> None:
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 2:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~2")
        simulation.native.set_memory_fraction(0, min(fraction, 1.0) or 1.0)  # 0 is without a limit

    return {
        "current_allocated_memory": used,
        "driver_allocated_memory": lambda: int(torch.accelerator.memory_reserved()),
        "recommended_max_memory": lambda: simulation.settings.memory,
        "set_per_process_memory_fraction": limit_memory,
    }


_PREFIXES = {
    "cuda": ("_cuda_", "_cudart", "_Cuda", "_CUDA", "_nccl_", "_cudnn"),
    "xpu": ("_xpu_", "_Xpu", "_XPU"),
}
#: cudaErrorHostMemoryAlreadyRegistered, cudaErrorHostMemoryNotRegistered.
_ALREADY_REGISTERED, _NOT_REGISTERED = 712, 713
_NCCL = 2 << 32 | 27 << 16 | 7  # version 2.27.7


class BindingNotSimulated(NotSimulated, AttributeError):
    """A binding that is not simulated; an AttributeError, because torch asks with hasattr which there are."""


def bindings(simulation: Simulation) -> dict[str, Any]:
    """Return the names that need a binding of torch._C, and add the bindings to it.

    torch.cuda and torch.xpu are torch's own Python code, which calls names of torch._C that a build for the CPU lacks.
    Those that are not simulated are refused by their names.
    """
    if simulation.type not in _PREFIXES:
        return {}
    binding: Any = torch._C
    binding.__getattr__ = _refusal(_PREFIXES[simulation.type])
    if simulation.type == "xpu":
        return {}
    binding._nccl_version = lambda: _NCCL
    binding._nccl_version_suffix = lambda: b""
    binding._cuda_getCurrentRawStream = _raw_stream(simulation)
    runtime = _runtime(simulation, "cuda")
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
        caller = sys._getframe(1)
        full = f"{caller.f_globals.get('__name__', 'torch')}.{caller.f_code.co_name}"
        raise_not_simulated(full, f"; it needs torch._C.{name}", BindingNotSimulated)

    return __getattr__


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


class _Runtime(SimpleNamespace):
    """The driver's runtime, as `torch.cuda.cudart()` offers it: a call of another function raises NotSimulated."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(f"torch.{name[:4]}.{name[:4]}rt().{name}")


def _runtime(simulation: Simulation, prefix: str) -> _Runtime:
    hosts = HostRegistrations(simulation.native)

    def synchronize() -> int:
        torch.accelerator.synchronize()
        return 0

    names = {
        "Error": type(f"{prefix}Error", (int,), {"success": 0}),
        "MemGetInfo": lambda device: torch.accelerator.get_memory_info(device),
        "HostRegister": lambda address, size, _flags=0: hosts.register(address, size, _ALREADY_REGISTERED),
        "HostUnregister": lambda address: hosts.unregister(address, _NOT_REGISTERED),
        "DeviceSynchronize": synchronize,
        # There is no profiler.
        **dict.fromkeys(("ProfilerStart", "ProfilerStop"), lambda: 0),
        "GetErrorString": lambda code: f"error {code}" if code else "no error",
    }
    return _Runtime(**{f"{prefix}{name}": value for name, value in names.items()})


def _supa(simulation: Simulation) -> dict[str, Any]:
    runtime = _runtime(simulation, "supa")

    def check_error(res: int) -> None:
        if res:
            raise RuntimeError(f"error {res} ({res})")

    # torch's compiler asks for it where torch.cuda._is_compiled().
    torch._C._cuda_getCurrentRawStream = _raw_stream(simulation)
    return {
        "supart": lambda: runtime, "check_error": check_error, "_is_compiled": lambda: True,
        "version": lambda: (2, 27, 7),
    }  # fmt: skip


#: ACL_HOST_REG_MAPPED, and ACL_ERROR_RT_PARAM_INVALID.
_MAPPED, _REFUSED = 2, 107000

#: The values that torch_npu accepts for an option; for any other option it accepts every value.
_CHOICES = {
    "ACL_PRECISION_MODE": ("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    "ACL_OP_SELECT_IMPL_MODE": ("high_performance", "high_precision"),
    "ACL_AICORE_NUM": tuple(map(str, range(1, 33))),
    "ACL_OP_DEBUG_LEVEL": ("0", "1", "2", "3", "4"),
    "ACL_OP_COMPILER_CACHE_MODE": ("disable", "enable", "force"),
}


class _Switch:
    """`torch.npu.matmul` or `.conv`: whether float32 may be computed as HF32. Here it never is."""

    def __init__(self, allowed: bool) -> None:
        self.__dict__["allow_hf32"] = allowed

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "allow_hf32" and not isinstance(value, bool):
            raise TypeError(f"allow_hf32 must be a bool, but got {type(value).__name__}")
        self.__dict__[name] = value


def _npu(simulation: Simulation) -> dict[str, Any]:
    options: dict[str, str] = {}

    def set_option(option: dict[str, Any]) -> None:
        if not isinstance(option, dict):
            raise TypeError("npu option must be a dict.")
        for name, value in option.items():
            if name in _CHOICES and str(value) not in _CHOICES[name]:
                raise ValueError(f"value of {name} should be in {list(_CHOICES[name])} but got {value}")
        options.update({name: str(value) for name, value in option.items()})

    def set_compile_mode(jit_compile: bool = False) -> None:
        set_option({"jitCompile": "enable" if jit_compile else "disable"})

    def get_device_capability(device: Any = None) -> tuple[int, ...] | None:
        text = os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", "")
        return tuple(int(part) for part in text.split(".")) if text else None

    hosts = HostRegistrations(simulation.native)
    registry = SimpleNamespace(
        # MAPPED takes whole pages of 4096 bytes.
        npuHostRegister=lambda address, size, flags=0: (
            _REFUSED if flags & _MAPPED and address % 4096 else hosts.register(address, size, _REFUSED)
        ),
        npuHostUnregister=lambda address: hosts.unregister(address, _REFUSED),
        **{name: absent(f"torch.npu.npurt().{name}") for name in ("npuStreamCreate", "npuStreamDestroy")},
    )
    return {
        "set_option": set_option,
        "set_compile_mode": set_compile_mode,
        "is_jit_compile_false": lambda: options.get("jitCompile") == "disable",
        "matmul": _Switch(allowed=False),
        "conv": _Switch(allowed=True),
        "get_device_capability": get_device_capability,
        "npurt": lambda: registry,
    }


class _Only:
    """The one device that this process may use, whichever index was set."""

    def __init__(self, simulation: Simulation) -> None:
        self.indices = Indices(simulation)
        self.devices = simulation.devices
        self.chosen = 0

    def set(self, device: Any) -> None:
        """Choose a device. Raises AssertionError for one that there is none of."""
        index = self.indices.to_set(device)
        there = list(range(self.devices))
        if index not in there:
            raise AssertionError(f"Trying to open device with idx={index} when only {there} are available")
        self.chosen = index


def _hpu(simulation: Simulation) -> dict[str, Any]:
    only = _Only(simulation)
    return {
        **_hpu_memory(simulation, only.indices),
        **_hpu_about(simulation, only),
        "device": _hpu_device(only),
        "set_device": only.set,
        "synchronize": lambda: torch.accelerator.synchronize(),
    }


def _hpu_device(only: _Only) -> type:
    class device:
        """The context manager of the module: it accepts the device of this process, and has no effect."""

        def __init__(self, device: Any) -> None:
            self.idx = only.indices.index(device)
            if self.idx not in (0, only.chosen):
                raise AssertionError(
                    f"Requested device_id={self.idx} is different from env_device_id={only.chosen}"
                )

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_error: object) -> None:
            pass

    return device


def _hpu_about(simulation: Simulation, only: _Only) -> dict[str, Any]:
    lazy = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"

    def get_device_properties(device: Any = None) -> str:
        return f"(sramBaseAddress=0x0, device={only.indices.described(device)}, simulated)"

    def get_device_capability(device: Any = None) -> str:
        only.indices.described(device)
        return simulation.vendor.distribution[1]

    return {
        "get_device_properties": get_device_properties,
        "get_device_capability": get_device_capability,
        "get_device_type": lambda: 5,
        "get_arch_list": list,
        "is_lazy": lambda: lazy,
        "is_lazy_mode": lambda: lazy,
    }


def _hpu_memory(simulation: Simulation, indices: Indices) -> dict[str, Any]:
    counted: Callable[..., dict[str, int]] = statistics(simulation)["memory_stats"]
    limit = simulation.settings.memory

    def memory_stats(device: Any = None) -> dict[str, int]:
        stats = counted(device)
        used, most = stats.get("allocated_bytes.all.current", 0), stats.get("allocated_bytes.all.peak", 0)
        made, freed = stats.get("allocation.all.allocated", 0), stats.get("allocation.all.freed", 0)
        return {
            "Limit": limit, "InUse": used, "MaxInUse": most, "NumAllocs": made,
            "NumFrees": freed, "ActiveAllocs": made - freed, "MaxAllocSize": most, "TotalSystemAllocs": made,
            "TotalSystemFrees": freed, "TotalActiveAllocs": made - freed,
        }  # fmt: skip

    def figure(key: str) -> Any:
        return lambda device=None: memory_stats(device)[key]

    def mem_get_info(device: Any = None) -> tuple[int, int]:
        free, total = torch.accelerator.get_memory_info(indices.counted(device))
        stats = counted()
        # What the pool holds and nothing uses is free.
        kept = stats.get("reserved_bytes.all.current", 0) - stats.get("allocated_bytes.all.current", 0)
        return free + kept, total

    return {
        "memory_stats": memory_stats,
        "memory_allocated": figure("InUse"),
        "memory_usage": figure("InUse"),
        "max_memory_allocated": figure("MaxInUse"),
        **dict.fromkeys(
            ("memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached"), figure("Limit")
        ),
        "mem_get_info": mem_get_info,
    }
