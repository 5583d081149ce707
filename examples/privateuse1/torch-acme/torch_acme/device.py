# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The module `torch.acme`, with the names that device modules of torch have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torch_acme import _C

T = TypeVar("T")
device_count, current_device = _C.device_count, _C.current_device
default_generators = tuple(_C.default_generator(index) for index in range(device_count()))


def is_available() -> bool:
    """Return whether there is a device."""
    return bool(device_count())


def is_initialized() -> bool:
    """Nothing is put off until a first use."""
    return True


def _lazy_call(callback: Callable[[], T]) -> T:
    return callback()


def _index(device: torch.device | str | int | None) -> int:
    """Index of a device; the current one for None and for a device without an index. Refuses any other."""
    if isinstance(device, (torch.device, str)):
        device = torch.device(device)
        if device.type != "acme":
            raise ValueError(f"expected an acme device, got {device}")
        device = device.index
    index = current_device() if device is None else device
    if not 0 <= index < device_count():
        raise RuntimeError(f"there is no acme:{index}; there are {device_count()} devices")
    return index


def set_device(device: torch.device | str | int) -> None:
    """Use this device from now on, in this thread."""
    _C.set_device(_index(device))


class device:
    """`with torch.acme.device(1):` uses a device for a while."""

    def __init__(self, device: torch.device | str | int) -> None:
        self._index, self._before = _index(device), 0

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._index)

    def __exit__(self, *_error: object) -> None:
        set_device(self._before)


def synchronize(device: torch.device | str | int | None = None) -> None:
    """Every call is done when it returns."""
    _index(device)


class Event:
    """A moment: there is nothing to wait for."""

    def __init__(self, enable_timing: bool = False, **_others: Any) -> None:
        self._time = 0.0

    def record(self, stream: object = None) -> None:
        """Now."""
        self._time = time.perf_counter()

    def query(self) -> bool:
        """All work before it is done."""
        return True

    def wait(self, stream: object = None) -> None:
        """Nothing."""

    def synchronize(self) -> None:
        """Nothing."""

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from here to `end`."""
        return (end._time - self._time) * 1000


def memory_allocated(device: torch.device | str | int | None = None) -> int:
    """Bytes of the device's tensors."""
    return int(_C.memory(_index(device))[0])


def max_memory_allocated(device: torch.device | str | int | None = None) -> int:
    """The most bytes since the last reset."""
    return int(_C.memory(_index(device))[1])


# The driver keeps nothing back that is freed.
memory_reserved, max_memory_reserved = memory_allocated, max_memory_allocated


def memory_stats(device: torch.device | str | int | None = None) -> dict[str, int]:
    """The same figures, by torch's keys."""
    used, peak, _ = _C.memory(_index(device))
    return {
        f"{name}_bytes.all.{moment}": value
        for name in ("allocated", "reserved")
        for moment, value in (("current", used), ("peak", peak))
    }


def reset_peak_memory_stats(device: torch.device | str | int | None = None) -> None:
    """Reset the peak to what is in use."""
    _C.reset_peak(_index(device))


def empty_cache() -> None:
    """Nothing is kept back."""


def mem_get_info(device: torch.device | str | int | None = None) -> tuple[int, int]:
    """Free bytes and all bytes."""
    used, _, total = _C.memory(_index(device))
    return total - used, total


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    default_generators[current_device()].manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed every device."""
    for generator in default_generators:
        generator.manual_seed(seed)


def initial_seed() -> int:
    """The seed of the current device."""
    return default_generators[current_device()].initial_seed()


def get_rng_state(device: torch.device | str | int | None = None) -> torch.Tensor:
    """State of the device's generator, as a host tensor."""
    return default_generators[_index(device)].get_state()


def set_rng_state(state: torch.Tensor, device: torch.device | str | int | None = None) -> None:
    """Restore a state."""
    default_generators[_index(device)].set_state(state)


def _is_in_bad_fork() -> bool:
    return False


def is_bf16_supported() -> bool:
    """The host computes it."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that torch.autocast supports."""
    return [torch.bfloat16, torch.float16]
