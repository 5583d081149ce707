# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: which there are and what they are, how device arguments are read, initialization, generators and memory."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from accel_sim.simulation import Simulation

#: `set_device` and some others do without an index there: the modules of other packages read None as the current.
_OPTIONAL = ("npu", "mlu", "hpu", "supa")


class Indices:
    """How one vendor's module reads device arguments: ints, strings, torch.device, its own `device`, None."""

    def __init__(self, simulation: Simulation) -> None:
        self.type = simulation.type
        self.module: Any = simulation.module
        self.devices = simulation.devices
        self.optional = self.type in _OPTIONAL

    def index(self, device: Any, optional: bool = True, allow_cpu: bool = False) -> int:
        """Return the index; that of the current device for None, or a device without one, if `optional`.

        Raises ValueError for another type's device, and for none if not `optional`.
        """
        if isinstance(device, int):
            return device
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            self._check_type(device, allow_cpu)
            if device.type == "cpu":
                return -1
            index: int | None = device.index
        else:
            index = getattr(device, "idx", None)  # of the module's own `device`
        if index is not None:
            return index
        if not optional:
            raise ValueError(
                f"Expected a torch.device with a specified index or an integer, but got:{device}"
            )
        return torch.accelerator.current_device_index()

    def to_set(self, device: Any) -> int:
        """Return the index that `set_device` gets; a negative one has no effect."""
        return self.index(device, self.optional)

    def described(self, device: Any, word: str = "device") -> int:
        """Return the index of a device that is described: its name, properties, peers. Raises AssertionError."""
        index = self.index(device)
        if self._has(index):
            return index
        if self.type == "xpu":
            self._raise_range(index)
        raise AssertionError(f"Invalid {word} id")

    def counted(self, device: Any) -> int:
        """Return the index of a device whose memory is counted. Raises RuntimeError."""
        index = self.described(device) if self.type == "hpu" else self.index(device)
        if self.type == "hpu" and index != 0:
            raise RuntimeError(f"hpu is one device a process; found index {index}, expected 0 or none")
        if not self._has(index):
            raise RuntimeError(f"Invalid device argument {index}: did you call init?")
        return index

    def queued(self, device: Any) -> int:
        """Return the index of a device whose stream is used; a negative one is the current. Raises RuntimeError."""
        index = self.index(device)
        if index < 0:
            return torch.accelerator.current_device_index()
        if not self._has(index):
            self._raise_range(index)
        return index

    def drawn(self, device: Any) -> int:
        """Return the index of a device whose generator is asked for. Raises IndexError.

        torch_npu and Habana's refuse other types; in the others the type does not matter, and mps has one generator.
        """
        if self.type == "mps":
            return 0
        if isinstance(device, int):
            device = torch.device(self.type, device)
        elif isinstance(device, str):
            device = torch.device(device)
        if self.type in ("npu", "hpu") and device is not None:
            self._check_type(device, allow_cpu=False)
        index = self.index(None) if device is None or device.index is None else int(device.index)
        if self.type == "hpu" and index:
            raise RuntimeError("hpu has the generator of device 0 alone")
        if not self._has(index):
            raise IndexError("tuple index out of range")
        return index

    def _has(self, index: int) -> bool:
        return 0 <= index < self.devices

    def _check_type(self, device: torch.device, allow_cpu: bool) -> None:
        if device.type == self.type or (allow_cpu and device.type == "cpu"):
            return
        wanted = f"{self.type} or cpu" if allow_cpu else self.type
        raise ValueError(f"Expected a {wanted} device, but got: {device}")

    def _raise_range(self, index: int) -> NoReturn:
        if self.type == "xpu":
            raise RuntimeError(
                f"The device index is out of range. It must be in [0, {self.devices}), but got {index}."
            )
        raise RuntimeError(f"Device index value {index} is out of index range [0, {self.devices})")


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    indices = Indices(simulation)
    scopes = _scopes(simulation, indices)
    return {
        **_lazy(simulation),
        **scopes,
        **_counting(simulation, indices, scopes["device"]),
        **_about(simulation, indices),
        **_random(simulation),
        **_memory(simulation),
        "ipc_collect": lambda: None,
    }


def _scopes(simulation: Simulation, indices: Indices) -> dict[str, Any]:
    scope = torch.accelerator.device_index

    class device(scope):  # type: ignore[misc,valid-type]
        """The context manager of the vendor's module; a negative index has no effect."""

        def __init__(self, device: Any) -> None:
            index = indices.index(device)
            scope.__init__(self, index if index >= 0 else None)

    class device_of(device):
        """The device of a tensor, current inside a `with`; nothing for a tensor of another type."""

        def __init__(self, obj: Any) -> None:
            scope.__init__(self, obj.device.index if obj.device.type == simulation.type else None)

    return {"device": device, "device_of": device_of}


def _counting(simulation: Simulation, indices: Indices, scope: Any) -> dict[str, Any]:
    def is_available() -> bool:
        if simulation.type == "cuda" and os.getenv("PYTORCH_NVML_BASED_CUDA_CHECK") != "1":
            simulation.native.poison_fork()  # torch asks the driver, which then exists
        return simulation.devices > 0

    def set_device(device: Any) -> None:
        index = indices.to_set(device)
        if index >= 0:
            torch.accelerator.set_device_index(index)

    def synchronize(device: Any = None) -> None:
        if simulation.type == "xpu":  # it does not make the device current
            torch.accelerator.synchronize(indices.queued(device))
            return
        with scope(device):
            torch.accelerator.synchronize()

    def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        return indices.index(device, optional, allow_cpu)

    return {
        "is_available": is_available,
        "device_count": lambda: simulation.devices,
        "current_device": lambda: torch.accelerator.current_device_index(),
        "set_device": set_device,
        "synchronize": synchronize,
        "_get_device_index": _get_device_index,
    }


def _about(simulation: Simulation, indices: Indices) -> dict[str, Any]:
    vendor = simulation.vendor

    def get_device_name(device: Any = None) -> str:
        indices.described(device)
        return vendor.device_name

    def get_device_properties(device: Any = None) -> SimpleNamespace:
        index = indices.described(device)
        about = {"name": vendor.device_name, "total_memory": simulation.settings.memory, **vendor.properties}
        if simulation.type in ("npu", "xpu"):
            about["uuid"] = uuid.UUID(int=simulation.physical[index] + 1)
        elif simulation.type == "cuda":
            about["uuid"] = uuid.UUID(vendor.uuid.format(simulation.physical[index]).removeprefix("GPU-"))
        return SimpleNamespace(**about)

    def get_device_capability(device: Any = None) -> Any:
        indices.described(device)
        return vendor.properties["major"], vendor.properties["minor"]

    def can_device_access_peer(device: Any, peer_device: Any) -> bool:
        return indices.described(device) != indices.described(peer_device, "peer device")

    return {
        "get_device_name": get_device_name,
        "get_device_properties": get_device_properties,
        "get_device_capability": get_device_capability,
        "can_device_access_peer": can_device_access_peer,
    }


#: Functions that initialize the device, in the modules that follow torch.cuda.
_COMMON = ("current_device", "synchronize", "current_stream", "default_stream", "get_device_properties")
_DESCRIBE = ("get_device_name", "get_device_capability", "can_device_access_peer")
_INITIALIZE = {
    "cuda": (*_COMMON, *_DESCRIBE, "get_rng_state", "mem_get_info", "set_device"),
    "xpu": (*_COMMON, *_DESCRIBE, "get_rng_state", "mem_get_info", "set_device"),
    "mlu": (
        *_COMMON,
        *_DESCRIBE,
        "get_rng_state",
        "memory_stats",
        "memory_allocated",
        "max_memory_allocated",
    ),
    "npu": (*_COMMON, "mem_get_info"),
    "supa": (*_COMMON, *_DESCRIBE, "get_rng_state", "mem_get_info"),
    "hpu": ("current_device", "synchronize", "get_device_properties", *_DESCRIBE),
}


class Lazy:
    """Initialization at first use, and the calls that wait for it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.done = False
        self.waiting: list[Callable[[], Any]] = []

    def init(self) -> None:
        """Initialize the device; the first call runs the queued calls. Raises RuntimeError in a forked process."""
        native = self.simulation.native
        native.check_fork()
        if self.done:
            return
        self.done = True
        module: Any = self.simulation.module
        if hasattr(module, "_lazy_init"):
            native.poison_fork()  # one without it counts as initialized from its import on, unused
        self._fill(module)
        while self.waiting:
            self.waiting.pop(0)()

    def _fill(self, module: Any) -> None:
        count = self.simulation.vendor.generators or self.simulation.devices
        generators = tuple(self.simulation.native.default_generator(i) for i in range(count))
        places: tuple[Any, ...] = (module, getattr(module, "random", None))
        for place in places:
            if hasattr(place, "default_generators"):
                place.default_generators = generators
        if hasattr(module, "_initialized"):
            module._initialized = True

    def is_initialized(self) -> bool:
        """Return whether this process, not one that it was forked from, has initialized the device."""
        return self.done and not self.simulation.native.is_in_bad_fork()

    def call(self, callable: Callable[[], Any], **kwargs: Any) -> None:
        """Call now, or when the device is initialized."""
        if self.is_initialized():
            callable()
        else:
            self.waiting.append(callable)

    def first(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, with the initialization before it."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            self.init()
            return function(*arguments, **options)

        return call


def _lazy(simulation: Simulation) -> dict[str, Any]:
    lazy = Lazy(simulation)
    return {
        "init": lazy.init,
        "is_initialized": lazy.is_initialized,
        "_initialized": False,
        "_is_in_bad_fork": lambda: simulation.native.is_in_bad_fork(),
        "_lazy_init": lazy.init,
        "_lazy_call": lazy.call,
    }


def initializing(simulation: Simulation, names: dict[str, Any]) -> dict[str, Any]:
    """Return those of the names that initialize the device in the real module, so that they do."""
    lazy: Lazy = names["_lazy_init"].__self__
    return {name: lazy.first(names[name]) for name in _INITIALIZE.get(simulation.type, ()) if name in names}


def _random(simulation: Simulation) -> dict[str, Any]:
    native, count = simulation.native, simulation.vendor.generators or simulation.devices
    indices = Indices(simulation)

    def generator(device: Any = None) -> torch.Generator:
        return native.default_generator(indices.drawn(device))  # type: ignore[no-any-return]

    def all_generators() -> list[torch.Generator]:
        return [native.default_generator(index) for index in range(count)]

    def manual_seed(seed: int) -> None:
        generator().manual_seed(int(seed))

    def manual_seed_all(seed: int) -> None:
        for each in all_generators():
            each.manual_seed(int(seed))

    def seed() -> int | None:
        drawn: int = generator().seed()
        return None if simulation.type == "npu" else drawn

    def seed_all() -> None:
        manual_seed_all(generator(0).seed())

    def set_rng_state(new_state: torch.Tensor, device: Any = simulation.type) -> None:
        generator(device).set_state(new_state)

    def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
        for each, state in zip(all_generators(), new_states, strict=True):
            each.set_state(state)

    return {
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed_all,
        "seed_all": seed_all,
        "initial_seed": lambda: generator().initial_seed(),
        "default_generators": (),
        "seed": seed,
        "get_rng_state": lambda device=simulation.type: generator(device).get_state(),
        "get_rng_state_all": lambda: [each.get_state() for each in all_generators()],
        "set_rng_state": set_rng_state,
        "set_rng_state_all": set_rng_state_all,
    }


#: Modules whose statistics are empty until the device is initialized.
_EMPTY_FIRST = ("cuda", "xpu", "npu", "supa")


def _memory(simulation: Simulation) -> dict[str, Any]:
    indices, native = Indices(simulation), simulation.native
    stats = statistics(simulation)

    def figure(key: str) -> Any:
        return lambda device=None: int(stats["memory_stats"](device).get(key, 0))

    def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
        index = indices.counted(device)
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        native.set_memory_fraction(index, fraction)

    reserved, most_reserved = figure("reserved_bytes.all.current"), figure("reserved_bytes.all.peak")
    return {
        **stats,
        "memory_allocated": figure("allocated_bytes.all.current"),
        "max_memory_allocated": figure("allocated_bytes.all.peak"),
        **dict.fromkeys(("memory_reserved", "memory_cached"), reserved),
        **dict.fromkeys(("max_memory_reserved", "max_memory_cached"), most_reserved),
        "set_per_process_memory_fraction": set_per_process_memory_fraction,
        "get_per_process_memory_fraction": lambda device=None: native.memory_fraction(
            indices.counted(device)
        ),
        "empty_cache": lambda: torch.accelerator.empty_cache(),
        **dict.fromkeys(
            ("reset_max_memory_allocated", "reset_max_memory_cached"), stats["reset_peak_memory_stats"]
        ),
    }


def statistics(simulation: Simulation) -> dict[str, Any]:
    """Return the functions that read or reset the allocator's statistics."""
    indices, module = Indices(simulation), simulation.module

    def memory_stats(device: Any = None) -> dict[str, Any]:
        if simulation.type in _EMPTY_FIRST and not module.is_initialized():
            return {}
        found = dict(torch.accelerator.memory_stats(indices.counted(device)))
        return found | ({"num_oom_rejections": 0} if simulation.type == "npu" else {})

    def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
        stats = simulation.simulated["memory_stats"](device)
        return "\n".join(f"{name}: {stats[name]}" for name in sorted(stats))

    def mem_get_info(device: Any = None) -> tuple[int, int]:
        index = indices.described(device) if simulation.type == "npu" else indices.index(device)
        free, total = torch.accelerator.get_memory_info(index)
        return free, total

    def reset_peak_memory_stats(device: Any = None) -> None:
        torch.accelerator.reset_peak_memory_stats(indices.counted(device))

    def reset_accumulated_memory_stats(device: Any = None) -> None:
        torch.accelerator.reset_accumulated_memory_stats(indices.counted(device))

    return {
        "memory_stats": memory_stats,
        "memory_summary": memory_summary,
        "mem_get_info": mem_get_info,
        "reset_peak_memory_stats": reset_peak_memory_stats,
        "reset_accumulated_memory_stats": reset_accumulated_memory_stats,
    }
