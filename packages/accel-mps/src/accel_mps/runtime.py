# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of a device module that OneDeviceAccelerator calls, with torch.mps."""

from __future__ import annotations

from typing import Any

import torch

from accel_mps.memory import Allocator, PeaksAtCalls, Statistics, allocator_keeps_peaks

statistics: Statistics = Allocator() if allocator_keeps_peaks() else PeaksAtCalls()


def is_available() -> bool:
    return torch.backends.mps.is_available()


def device_count() -> int:
    return int(is_available())


def synchronize() -> None:
    torch.mps.synchronize()


def get_rng_state() -> torch.Tensor:
    return torch.mps.get_rng_state()


def set_rng_state(new_state: torch.Tensor) -> None:
    torch.mps.set_rng_state(new_state)


def manual_seed(seed: int) -> None:
    torch.mps.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    torch.mps.manual_seed(seed)


def default_generator() -> torch.Generator:
    # Private; seed() and get_rng_state() of torch.mps call it in every release since 2.0
    return torch.mps._get_default_mps_generator()


def initial_seed() -> int:
    return default_generator().initial_seed()


def empty_cache() -> None:
    statistics.stats()  # update the peaks before the memory is released
    torch.mps.empty_cache()


def memory_stats() -> dict[str, Any]:
    return statistics.stats()


def memory_allocated() -> int:
    return int(statistics.stats()["allocated_bytes.all.current"])


def max_memory_allocated() -> int:
    return int(statistics.stats()["allocated_bytes.all.peak"])


def memory_reserved() -> int:
    return int(statistics.stats()["reserved_bytes.all.current"])


def max_memory_reserved() -> int:
    return int(statistics.stats()["reserved_bytes.all.peak"])


def reset_peak_memory_stats() -> None:
    statistics.reset_peaks()


def mem_get_info() -> tuple[int, int]:
    """Return free and total bytes of the working set size that Metal recommends."""
    total = int(torch.mps.recommended_max_memory())
    return max(0, total - int(torch.mps.driver_allocated_memory())), total
