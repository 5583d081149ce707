# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors as one flat tensor, tensors as bytes, and page-locked memory as DeepSpeed 0.19 allocates it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from accel_core.op_builder import Implementation, OpBuilder
from accel_ops.pinned_memory import MEMORY


def cast_to_byte_tensor(
    tensors: torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...],
) -> torch.Tensor | list[torch.Tensor]:
    """Return the bytes of a tensor, or of each of a list, as a flat tensor of uint8: its memory where contiguous."""
    if isinstance(tensors, (list, tuple)):
        return [as_bytes(tensor) for tensor in tensors]
    return as_bytes(tensors)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor as a flat tensor of uint8."""
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # The stride of a single element can be any number, which view() does not take.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)


class UtilsBuilder(OpBuilder):
    """Builds `utils`: torch's `flatten(tensors)` and `unflatten(flat, tensors)`, and `cast_to_byte_tensor(tensors)`."""

    NAME = "utils"
    BUILD_VAR = "DS_BUILD_UTILS"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and torch's module."""
        return True, "torch._utils"

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions."""
        return SimpleNamespace(
            flatten=_flatten_dense_tensors,
            unflatten=_unflatten_dense_tensors,
            cast_to_byte_tensor=cast_to_byte_tensor,
        )


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
