# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Another allocator of pinned memory: passed over, asked for something else, counted wrongly."""

from __future__ import annotations

from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator

from broken import breaks, broken

broken("OtherAllocatorIsPassedOver", "pinned_memory.active_allocator_is_used", _native_pins=lambda self: None)
broken(
    "LockedBytesAreNotCounted",
    "pinned_memory.inactive_allocator_is_left_alone pinned_memory.active_allocator_is_used",
    _track=lambda self, nbytes: None,
)


@breaks("pinned_memory.active_allocator_is_used")
class MemoryIsKept(GOOD_Accelerator):
    def unpin_memory(self, tensor: torch.Tensor) -> Any:
        return None


@breaks("pinned_memory.active_allocator_is_used[no copy, flat]")
class OtherAllocatorIsNeverAskedForFlat(GOOD_Accelerator):
    def pin_memory(
        self,
        tensor: torch.Tensor,
        make_copy: bool | int = True,
        match_shape: bool = True,
        *,
        align_bytes: int = 1,
    ) -> torch.Tensor:
        match_shape = match_shape or self._native_pins() is not None
        return super().pin_memory(tensor, make_copy, match_shape, align_bytes=align_bytes)


@breaks("pinned_memory.other_memory_is_not_taken_from_it")
class WholePagesAreTakenFromTheOtherAllocator(GOOD_Accelerator):
    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        pins = self._native_pins()
        return super().pin_aligned(tensor) if pins is None else pins.pin(tensor, True, True)


broken(
    "RegisteredMemoryIsKept",
    "pinned_memory.registered_memory_can_be_given_back",
    unregister_host_memory=lambda self, address: None,
)
broken(
    "RefusalOfTheRuntimeIsHidden",
    "pinned_memory.registered_memory_can_be_given_back",
    unregister_host_memory=lambda self, address: self._registered.discard(address),
)


@breaks("pinned_memory.registered_memory_can_be_given_back")
class RegistrationIsNotTold(GOOD_Accelerator):
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        super().register_host_memory(address, num_bytes)
        return None  # type: ignore[return-value]
