# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked memory with the interface of deepspeed.utils.pin_memory (DeepSpeed 0.19)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from accel_core.op_builder import Implementation, OpBuilder
from accel_ops.pinned_memory import MEMORY


class pin_handle:
    """Upstream's class. All handles share the page-locked memory of the process."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """Return `num_elem` zeros of the example's dtype in whole pages; warns where they cannot be locked."""
        return MEMORY.allocate(num_elem, example_tensor.dtype)

    def free_cpu_locked_tensor(self, locked_tensor: torch.Tensor) -> bool:
        """Free the block that begins with the tensor; False where none does."""
        return MEMORY.free(locked_tensor.data_ptr())

    def free_cpu_locked_tensor_by_ptr(self, address: int) -> bool:
        """Free the block at the address; False where none begins there."""
        return MEMORY.free(address)

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Return whether the memory is locked, by this package or by torch."""
        return MEMORY.is_locked(buffer) or buffer.is_pinned()


class PinMemoryBuilder(OpBuilder):
    """Builds `pin_memory`: the allocator of DS_PIN_MEMORY_BACKEND=native. Nothing is compiled."""

    NAME = "pin_memory"
    BUILD_VAR = "DS_BUILD_PIN_MEMORY"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.HOST,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and the functions that it uses."""
        return True, "mmap and mlock of the C library"

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's class."""
        return SimpleNamespace(pin_handle=pin_handle)
