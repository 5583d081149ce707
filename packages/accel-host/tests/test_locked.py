# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked memory: whole pages, exactly known, and never freed under a tensor that shows it."""

from __future__ import annotations

import gc
import random

import pytest
import torch

from accel_host.errors import OutOfPinnedMemory
from accel_host.locked import LockedMemory, pinned_like


def test_memory_begins_at_a_page_and_is_zero() -> None:
    memory = LockedMemory()
    for count in (1, 5, 1024, 1 << 20):
        tensor = memory.allocate(count, torch.float32)
        assert tensor.data_ptr() % 4096 == 0
        assert tensor.shape == (count,)
        assert not tensor.any()


def test_nothing_is_a_tensor_too() -> None:
    memory = LockedMemory()
    assert memory.allocate(0, torch.float32).shape == (0,)


def test_a_view_is_owned_and_a_neighbour_is_not() -> None:
    memory = LockedMemory()
    tensor = memory.allocate(1024, torch.float32)
    assert memory.owns(tensor)
    assert memory.owns(tensor[3:9].view(2, 3))
    assert memory.owns(tensor[::7])
    assert not memory.owns(torch.zeros(1024))
    assert not memory.owns(torch.zeros(4, device="meta"))


def test_memory_goes_with_its_last_view() -> None:
    memory = LockedMemory()
    tensor = memory.allocate(1024, torch.float32)
    view = tensor[5:6]
    del tensor
    gc.collect()
    assert memory.owns(view)
    address = view.data_ptr() - 20
    del view
    gc.collect()
    assert not memory.free(address)


def test_a_tensor_that_outlives_its_memory_reads_zeros() -> None:
    memory = LockedMemory()
    tensor = memory.allocate(1024, torch.float32).fill_(7)
    assert memory.free(tensor.data_ptr())
    assert not memory.owns(tensor)
    assert not tensor.any()


def test_what_is_alive_is_exactly_what_was_allocated_and_not_freed() -> None:
    memory, draw = LockedMemory(), random.Random(0)
    alive: list[torch.Tensor] = []
    freed: list[torch.Tensor] = []
    for _ in range(300):
        if alive and draw.random() < 0.5:
            tensor = alive.pop(draw.randrange(len(alive)))
            assert memory.free(tensor.data_ptr())
            freed.append(tensor)
        else:
            alive.append(memory.allocate(draw.randrange(1, 5000), torch.uint8))
        assert all(memory.owns(tensor) for tensor in alive)
    assert not any(memory.owns(tensor) for tensor in freed)


def test_too_much_is_a_memory_error_that_says_so() -> None:
    with pytest.raises(MemoryError, match="ACC-506") as raised:
        LockedMemory().allocate(1 << 60, torch.uint8)
    assert isinstance(raised.value, OutOfPinnedMemory)


def test_a_pinned_copy_has_shape_type_and_data() -> None:
    tensor = torch.arange(12, dtype=torch.int16).view(3, 4)
    copy = pinned_like(tensor.t())
    assert torch.equal(copy, tensor.t())
    assert copy.is_contiguous()
    assert copy.data_ptr() % 4096 == 0
