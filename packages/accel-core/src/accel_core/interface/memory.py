# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device memory. Sizes are in bytes (int); the default is the current device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class MemoryInterface(ABC):
    """Total, used and peak device memory."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Release unused blocks of the caching allocator."""

    @abstractmethod
    def memory_allocated(self, device_index: int | None = None) -> int:
        """Return the bytes held by tensors."""

    @abstractmethod
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """Return the peak of `memory_allocated` since the start or the last reset, in bytes."""

    @abstractmethod
    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        """Reset the peak of `memory_allocated`."""

    @abstractmethod
    def memory_cached(self, device_index: int | None = None) -> int:
        """Deprecated name of `memory_reserved`."""

    @abstractmethod
    def max_memory_cached(self, device_index: int | None = None) -> int:
        """Deprecated name of `max_memory_reserved`."""

    @abstractmethod
    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        """Reset the peak of `memory_reserved`."""

    @abstractmethod
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        """Return statistics under torch's keys: `allocated_bytes.all.current`, `allocated_bytes.all.peak`, …"""

    @abstractmethod
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Reset all peaks."""

    @abstractmethod
    def memory_reserved(self, device_index: int | None = None) -> int:
        """Return the bytes that the caching allocator holds, used or not."""

    @abstractmethod
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        """Return the peak of `memory_reserved` since the start or the last reset, in bytes."""

    @abstractmethod
    def total_memory(self, device_index: int | None = None) -> int:
        """Return the total memory of the device, in bytes."""

    @abstractmethod
    def available_memory(self, device_index: int | None = None) -> int:
        """Return the bytes that this process can still allocate: free memory, and what its allocator holds unused."""
