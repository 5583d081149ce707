# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked memory as deepspeed.utils.pin_memory asks for it (DeepSpeed 0.19)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from accel_core.op_builder import OpBuilder
from accel_host.locked import MEMORY


class pin_handle:
    """Upstream's handle; all handles share the memory of the process."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """`num_elem` elements of the example's type, in whole pages; with a warning where they can not be locked."""
        return MEMORY.allocate(num_elem, example_tensor.dtype)

    def free_cpu_locked_tensor(self, locked_tensor: torch.Tensor) -> bool:
        """Free the pages that begin where the tensor does; False where none do."""
        return MEMORY.free(locked_tensor.data_ptr())

    def free_cpu_locked_tensor_by_ptr(self, address: int) -> bool:
        """The same by address."""
        return MEMORY.free(address)

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Whether torch or this package locked the memory; not where the system refused to."""
        return MEMORY.is_locked(buffer) or buffer.is_pinned()


class PinMemoryBuilder(OpBuilder):
    """The allocator that DS_PIN_MEMORY_BACKEND=native chooses; nothing is compiled."""

    NAME = "pin_memory"
    BUILD_VAR = "DS_BUILD_PIN_MEMORY"

    def compatibility(self) -> tuple[bool, str]:
        """Always: it needs no compiler."""
        return True, "mmap and mlock of the C library"

    def load(self, verbose: bool = True) -> Any:
        """Upstream's class."""
        return SimpleNamespace(pin_handle=pin_handle)
