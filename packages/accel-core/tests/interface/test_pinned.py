# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whole pages of pinned memory, which an allocator gives that begins in the middle of one; simulated ones do not."""

import mmap
from typing import Any

import pytest
import torch

from accel_core.interface import PinnedMemoryInterface


class Pieces(PinnedMemoryInterface):
    """Cuts pinned memory out of larger pieces, as allocators with a cache do."""

    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        piece = torch.empty(512 + tensor.nbytes, dtype=torch.uint8)[512:]
        return piece.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def torch_is_pinned(self, tensor: Any) -> bool:
        return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_whole_pages_are_cut_out_of_a_larger_piece(dtype: torch.dtype, size: int) -> None:
    tensor = torch.arange(size).to(dtype).reshape(1, size)
    pinned = Pieces().pin_memory(tensor, align_bytes=0)
    assert pinned.data_ptr() % mmap.PAGESIZE == 0
    assert torch.equal(pinned, tensor)
    assert (pinned.dtype, pinned.shape) == (tensor.dtype, tensor.shape)
