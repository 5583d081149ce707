# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device memory: figures in bytes (int), for the current device unless an index is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class MemoryInterface(ABC):
    """How much memory there is, is in use, and was in use at most."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Give cached, unused blocks back to the device."""

    @abstractmethod
    def memory_allocated(self, device_index: int | None = None) -> int:
        """Bytes held by tensors."""

    @abstractmethod
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """Largest `memory_allocated` since the start or the last reset, in bytes."""

    @abstractmethod
    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        """Start the peak of `memory_allocated` anew."""

    @abstractmethod
    def memory_cached(self, device_index: int | None = None) -> int:
        """Old name of `memory_reserved`."""

    @abstractmethod
    def max_memory_cached(self, device_index: int | None = None) -> int:
        """Old name of `max_memory_reserved`."""

    @abstractmethod
    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        """Start the peak of `memory_reserved` anew."""

    @abstractmethod
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        """Figures under torch's keys, such as `allocated_bytes.all.current` and `allocated_bytes.all.peak`."""

    @abstractmethod
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Start all peaks anew."""

    @abstractmethod
    def memory_reserved(self, device_index: int | None = None) -> int:
        """Bytes that the caching allocator holds, used or not."""

    @abstractmethod
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        """Largest `memory_reserved` since the start or the last reset, in bytes."""

    @abstractmethod
    def total_memory(self, device_index: int | None = None) -> int:
        """Bytes of memory the device has."""

    @abstractmethod
    def available_memory(self, device_index: int | None = None) -> int:
        """Bytes that can still be allocated, other processes' use counted."""
