# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Base class for device types with one device per process: names have no index, other indices are errors."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import override

from accel_core.device.torch_device import TorchDeviceAccelerator
from accel_core.errors import InvalidDevice


class OneDeviceAccelerator(TorchDeviceAccelerator):
    """For runtimes with one device per process, which the launcher chooses (Gaudi, Apple's GPU).

    `device(i)` and `device_name(i)` ignore the index, because callers pass local ranks; `current_device_name()` has it,
    as the names of tensors' devices have. Every other method accepts
    None and the current index, and raises InvalidDevice (RuntimeError) for others, as the result would be that of
    another device. Vendors declare the trait `indexed_devices`.
    """

    @override
    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device(self._name)

    @override
    def device_name(self, device_index: int | None = None) -> str:
        return self._name

    def checked_index(self, device_index: Any) -> int | None:
        """Return None, the index to pass to the runtime; raises InvalidDevice for the index of another device."""
        if device_index is None:
            return None
        index = device_index if isinstance(device_index, int) else torch.device(device_index).index
        if index is not None and index != self.current_device():
            raise InvalidDevice(
                what=f"there is no such device of type {self._name} in this process",
                found=f"index {index}",
                expected=f"{self.current_device()}, the only one, or None",
                do="leave the index out; the launcher decides which device the process has",
            )
        return None

    # The runtime gets no index: None is the only device, too.

    @override
    def synchronize(self, device_index: int | None = None) -> None:
        self.checked_index(device_index)
        self.device_module.synchronize()

    @override
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        self.checked_index(device_index)
        self.device_module.set_rng_state(new_state)

    @override
    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        self.checked_index(device_index)
        return self.device_module.get_rng_state()

    @override
    def current_stream(self, device_index: int | None = None) -> Any:
        self.checked_index(device_index)
        return self.device_module.current_stream()

    @override
    def default_stream(self, device_index: int | None = None) -> Any:
        self.checked_index(device_index)
        return self.device_module.default_stream()

    @override
    def memory_allocated(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return self.device_module.memory_allocated()

    @override
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return self.device_module.max_memory_allocated()

    @override
    def memory_reserved(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return self.device_module.memory_reserved()

    @override
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return self.device_module.max_memory_reserved()

    @override
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        self.checked_index(device_index)
        return self.device_module.memory_stats()

    @override
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self.checked_index(device_index)
        self.device_module.reset_peak_memory_stats()

    @override
    def total_memory(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return int(self.device_module.mem_get_info()[1])

    @override
    def available_memory(self, device_index: int | None = None) -> int:
        self.checked_index(device_index)
        return int(self.device_module.mem_get_info()[0]) + self._unused_memory()
