# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: names, indices, counting, synchronizing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class DeviceInterface(ABC):
    """Which device, and how the host waits for it."""

    _name: str | None
    #: Whether range_push takes an NVTX domain and category.
    supports_nvtx_domain: bool = False

    @abstractmethod
    def is_available(self) -> bool:
        """Whether at least one device can be used. Opens no device context."""

    @abstractmethod
    def device_count(self) -> int:
        """Number of devices this process may use, 0 when there is none."""

    @abstractmethod
    def current_device(self) -> int:
        """Index of the device in use."""

    @abstractmethod
    def set_device(self, device_index: int) -> None:
        """Use this device from now on in this thread; raises RuntimeError for an index out of range."""

    @abstractmethod
    def synchronize(self, device_index: int | None = None) -> None:
        """Wait until all work queued on the device (default: the current one) is done."""

    @abstractmethod
    def device(self, device_index: int | None = None) -> torch.device:
        """The torch.device with this index; without one, the device type alone, as in `.to(device())`."""

    @abstractmethod
    def device_name(self, device_index: int | None = None) -> str:
        """`"npu"`, or `"npu:1"` with an index: strings that torch takes as a device."""

    @abstractmethod
    def current_device_name(self) -> str:
        """`device_name(current_device())`."""

    @abstractmethod
    def is_synchronized_device(self) -> bool:
        """Whether every operation is done when its call returns, as on a CPU."""

    @abstractmethod
    def use_host_timers(self) -> bool:
        """Whether the host's clock has to time device work because events cannot."""

    @abstractmethod
    def resolves_data_dependency(self) -> bool:
        """Whether the runtime itself orders work that shares data; DeepSpeed then waits less."""

    @abstractmethod
    def handles_memory_backpressure(self) -> bool:
        """Whether the runtime itself waits when memory runs short; DeepSpeed then queues freely."""

    @abstractmethod
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        """Open a named range for a profiler; nothing where there is none."""

    @abstractmethod
    def range_pop(self, domain: str | None = None) -> None:
        """Close the innermost range."""
