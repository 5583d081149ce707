# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The pretend driver, in the shape of torch's device modules: devices whose memory is the host's.

TOY_DEVICES is their number: 0 is a machine without a card, -1 a driver that crashes.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import initial_seed, manual_seed  # noqa: F401
from torch.cpu import Stream, current_stream, stream  # noqa: F401

manual_seed_all = manual_seed
default_stream = current_stream
default_generators = (torch.default_generator, torch.default_generator)
_current = 0


class Event:
    """Everything is done when its call returns: events have nothing to wait for."""

    def record(self, queue: object = None) -> None:
        """Nothing."""


def device_count() -> int:
    """Number of devices; raises RuntimeError when the driver is broken."""
    count = int(os.environ.get("TOY_DEVICES", "2"))
    if count < 0:
        raise RuntimeError("the toy driver is broken")
    return count


def is_available() -> bool:
    """True if there is a device."""
    return device_count() > 0


def current_device() -> int:
    """Index of the device in use."""
    return _current


def set_device(index: int) -> None:
    """Use another device; raises RuntimeError for an index out of range."""
    global _current
    if not 0 <= index < device_count():
        raise RuntimeError(f"toy device {index} does not exist, there are {device_count()}")
    _current = index


def synchronize(index: int | None = None) -> None:
    """Nothing is ever queued."""


def empty_cache() -> None:
    """Nothing is ever kept."""


def memory_allocated(index: int | None = None) -> int:
    """Bytes in use: the toy counts none."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(index: int | None = None) -> dict[str, int]:
    """The same, by torch's keys."""
    return {"allocated_bytes.all.current": 0, "allocated_bytes.all.peak": 0}


def reset_peak_memory_stats(index: int | None = None) -> None:
    """Peaks are 0 anyway."""


def mem_get_info(index: int | None = None) -> tuple[int, int]:
    """Free and total bytes."""
    return 1 << 30, 1 << 30


def is_bf16_supported() -> bool:
    """As on the host."""
    return True


def get_rng_state(index: int | None = None) -> torch.Tensor:
    """State of the host's generator, which all devices share."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, index: int | None = None) -> None:
    """Set the host's generator, which all devices share."""
    torch.set_rng_state(state)


def _lazy_call(callback: Callable[[], object]) -> object:
    return callback()
