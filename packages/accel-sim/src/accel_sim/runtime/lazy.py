# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Initialization at first use, the calls that wait for it, and what a process that was forked after it cannot do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from accel_sim.simulation import Simulation

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
    "npu": (*_COMMON, "mem_get_info", "utilization"),
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


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
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
