# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A device type of which torch knows one a process: names have no index, and no other index is served."""

from __future__ import annotations

from typing import Any

import torch

from accel_core.errors import InvalidDevice
from accel_core.torch_device import TorchDeviceAccelerator


class OneDeviceAccelerator(TorchDeviceAccelerator):
    """For runtimes that put every process on one device, whichever its launcher chose (Gaudi, Apple's GPU).

    `device(i)` and `device_name(i)` drop the index, since callers pass local ranks. Every other method that
    takes one serves None and the current device, and raises InvalidDevice (RuntimeError) for any other:
    an answer would be about the wrong device. Vendors declare the trait `indexed_devices`.
    """

    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device(self._name)

    def device_name(self, device_index: int | None = None) -> str:
        return self._name

    def current_device_name(self) -> str:
        return self._name

    def _checked(self, device_index: Any) -> int | None:
        """None, which is what the runtime is asked with; raises InvalidDevice for another device's index."""
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

    def synchronize(self, device_index: int | None = None) -> None:
        self._checked(device_index)
        self._ns.synchronize()

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        super().set_rng_state(new_state, self._checked(device_index))

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return super().get_rng_state(self._checked(device_index))

    def current_stream(self, device_index: int | None = None) -> Any:
        return super().current_stream(self._checked(device_index))

    def default_stream(self, device_index: int | None = None) -> Any:
        return super().default_stream(self._checked(device_index))

    def memory_allocated(self, device_index: int | None = None) -> int:
        return super().memory_allocated(self._checked(device_index))

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return super().max_memory_allocated(self._checked(device_index))

    def memory_reserved(self, device_index: int | None = None) -> int:
        return super().memory_reserved(self._checked(device_index))

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return super().max_memory_reserved(self._checked(device_index))

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return super().memory_stats(self._checked(device_index))

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        super().reset_peak_memory_stats(self._checked(device_index))

    def total_memory(self, device_index: int | None = None) -> int:
        self._checked(device_index)
        return int(self._ns.mem_get_info()[1])

    def available_memory(self, device_index: int | None = None) -> int:
        return super().available_memory(self._checked(device_index))
