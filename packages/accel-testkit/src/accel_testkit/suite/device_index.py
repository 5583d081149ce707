# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The methods with a device index, what each of them reads or changes, and two devices in different states."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.call_signatures import public_members

#: The unit of the memory on each device; larger than what an allocator takes at once.
BLOCK = 24 << 20
#: How far two readings of one figure may be apart on a device that other processes use too.
_NOISE = 4 << 20

#: What a method returns, as a value that differs between two devices in different states.
READERS: dict[str, Callable[[Any], Any]] = {
    "current_stream": lambda stream: stream,
    "default_generator": lambda generator: generator.initial_seed(),
    "default_stream": lambda stream: stream,
    "get_rng_state": lambda state: bytes(state.tolist()),
    "memory_stats": lambda stats: stats["allocated_bytes.all.current"],
    **dict.fromkeys(
        (
            "available_memory", "max_memory_allocated", "max_memory_cached", "max_memory_reserved",
            "memory_allocated", "memory_cached", "memory_reserved", "total_memory",
        ),
        int,
    ),
}  # fmt: skip
#: The peak that each method resets.
RESETS = {
    "reset_max_memory_allocated": "max_memory_allocated",
    "reset_max_memory_cached": "max_memory_cached",
    "reset_peak_memory_stats": "max_memory_allocated",
}
#: Methods whose index does not choose what they read: it is what they return or make current.
NAMING = ("device", "device_name", "set_device")
WAITING = ("synchronize",)
RESTORING = ("set_rng_state",)
#: Equal devices have equal totals.
ALIKE = ("total_memory",)
#: Methods whose index has no default.
EXPLICIT = ("default_generator",)


def indexed_methods() -> list[str]:
    """Return the names of the interface's methods with a device index, in alphabetical order."""
    return [
        name
        for name, member in public_members().items()
        if inspect.isfunction(member) and "device_index" in inspect.signature(member).parameters
    ]


def read(accelerator: DeepSpeedAccelerator, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of `READERS`; return its result as a value to compare."""
    return READERS[name](getattr(accelerator, name)(*args, **kwargs))


def same(name: str, one: Any, other: Any) -> bool:
    """Return whether two readings of a method are of the same device."""
    return bool(abs(one - other) < _NOISE if name == "available_memory" else one == other)


def call(accelerator: DeepSpeedAccelerator, name: str, *index: Any) -> Any:
    """Call any method with an index; `set_rng_state` is called with the state of the current device."""
    if name == "set_rng_state":
        return accelerator.set_rng_state(accelerator.get_rng_state(), *index)
    return getattr(accelerator, name)(*index)


@contextmanager
def different_devices(accelerator: DeepSpeedAccelerator, second: int) -> Iterator[None]:
    """Give two devices different seeds, memory and peaks; afterwards the memory is free again."""
    accelerator.empty_cache()
    held = []
    for index, blocks in ((0, 1), (second, 3)):
        accelerator.set_device(index)
        accelerator.manual_seed(700 + index)
        held.append(torch.empty(blocks * BLOCK, dtype=torch.uint8, device=accelerator.device(index)))
        accelerator.reset_peak_memory_stats(index)
    try:
        yield
    finally:
        held.clear()
        accelerator.set_device(0)
        accelerator.empty_cache()
