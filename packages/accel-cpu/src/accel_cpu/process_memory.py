# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory methods of the CPU: the memory of this process, whatever the index."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from accel_core.interface import DeepSpeedAccelerator
from accel_cpu.memory import HostMemory


class ProcessMemory(DeepSpeedAccelerator):
    """Mixin with the memory methods of the interface; goes before TorchDeviceAccelerator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._memory = HostMemory()

    # Names of DeepSpeed's class for the CPU.

    @property
    def max_mem(self) -> int:
        """The peak of the resident memory, in bytes."""
        return self._memory.peak()

    def get_rss(self) -> int:
        """Return the resident memory of this process, in bytes."""
        return self._memory.rss()

    def reset_rss(self) -> int:
        """Reset the peak; return the resident memory, in bytes."""
        self._memory.reset_peak()
        return self._memory.rss()

    @override
    def empty_cache(self) -> None:
        pass

    @override
    def memory_allocated(self, device_index: int | None = None) -> int:
        return self._memory.rss()

    @override
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self._memory.peak()

    # There is no caching allocator: reserved memory is allocated memory.
    memory_reserved = memory_allocated
    max_memory_reserved = max_memory_allocated

    @override
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self._memory.reset_peak()

    @override
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        figures = {"current": self._memory.rss(), "peak": self._memory.peak()}
        kinds = ("allocated_bytes", "reserved_bytes")
        return {f"{kind}.all.{name}": value for kind in kinds for name, value in figures.items()}

    @override
    def total_memory(self, device_index: int | None = None) -> int:
        return self._memory.total()

    @override
    def available_memory(self, device_index: int | None = None) -> int:
        return self._memory.available()
