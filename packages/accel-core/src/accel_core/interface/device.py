# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: names, indices, number, synchronization."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class DeviceInterface(ABC):
    """Names, indices and number of devices, and synchronization with them."""

    _name: str | None
    #: Whether range_push takes an NVTX domain and category.
    supports_nvtx_domain: bool = False

    @abstractmethod
    def is_available(self) -> bool:
        """Return whether at least one device can be used. Opens no device context."""

    @abstractmethod
    def device_count(self) -> int:
        """Return the number of devices that this process may use."""

    @abstractmethod
    def current_device(self) -> int:
        """Return the index of the current device."""

    @abstractmethod
    def set_device(self, device_index: int) -> None:
        """Set the current device of this thread; raises RuntimeError if the index is out of range."""

    @abstractmethod
    def synchronize(self, device_index: int | None = None) -> None:
        """Wait for all work queued on the device (default: the current one)."""

    @abstractmethod
    def device(self, device_index: int | None = None) -> torch.device:
        """Return the torch.device with this index; without one, the device type alone, as in `.to(device())`."""

    @abstractmethod
    def device_name(self, device_index: int | None = None) -> str:
        """Return the device as a string for torch: `"npu"`, or `"npu:1"` with an index."""

    @abstractmethod
    def current_device_name(self) -> str:
        """Return the name of the current device, with its index if it has one: `"npu:0"`."""

    @abstractmethod
    def is_synchronized_device(self) -> bool:
        """Return whether every operation is complete when its call returns, as on a CPU."""

    @abstractmethod
    def use_host_timers(self) -> bool:
        """Return whether device work has to be timed with the host's clock, because events cannot."""

    @abstractmethod
    def resolves_data_dependency(self) -> bool:
        """Return whether the runtime orders operations on the same data; DeepSpeed then synchronizes less."""

    @abstractmethod
    def handles_memory_backpressure(self) -> bool:
        """Return whether the runtime waits when memory is short; DeepSpeed then does not limit queued work."""

    @abstractmethod
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        """Open a named profiler range; does nothing without a profiler."""

    @abstractmethod
    def range_pop(self, domain: str | None = None) -> None:
        """Close the innermost profiler range."""
