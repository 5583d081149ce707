# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned memory: both generations of callers, and DeepSpeed's native allocator where it is chosen."""

import mmap
from typing import Any

import pytest
import torch

from accel_core.interface import PinnedMemoryInterface


class Room(PinnedMemoryInterface):
    """Locks nothing, and remembers how it was asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        self.calls.append("copy")
        return tensor.clone()

    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        self.calls.append(f"empty {tuple(shape)}")
        return tensor.new_empty(shape)

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return False

    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        self.calls.append("aligned")
        return tensor.clone()


class Pieces(Room):
    """Cuts pinned memory out of larger pieces, as allocators with a cache do."""

    def __init__(self, locked: bool) -> None:
        super().__init__()
        self.locked = locked

    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        piece = torch.empty(512 + tensor.nbytes, dtype=torch.uint8)[512:]
        return piece.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return self.locked

    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        return PinnedMemoryInterface.pin_aligned(self, tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_whole_pages_are_cut_out_of_a_larger_piece(dtype: torch.dtype, size: int) -> None:
    tensor = torch.arange(size).to(dtype).reshape(1, size)
    pinned = Pieces(locked=True).pin_memory(tensor, align_bytes=0)
    assert pinned.data_ptr() % mmap.PAGESIZE == 0
    assert torch.equal(pinned, tensor)
    assert (pinned.dtype, pinned.shape) == (tensor.dtype, tensor.shape)


def test_whole_pages_of_a_device_that_locks_none_are_a_plain_copy() -> None:
    pinned = Pieces(locked=False).pin_memory(torch.ones(3), align_bytes=0)
    assert torch.equal(pinned, torch.ones(3))
    assert pinned.untyped_storage().nbytes() < mmap.PAGESIZE


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def tensor() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("arguments", "keywords", "expected"),
    [
        ((), {}, "copy"),
        ((1,), {}, "copy"),
        ((0,), {}, "aligned"),
        ((), {"align_bytes": 1}, "copy"),
        ((), {"align_bytes": 0}, "aligned"),
        ((True,), {}, "copy"),
        ((False,), {}, "empty (2, 3)"),
        ((), {"make_copy": False, "match_shape": False}, "empty (6,)"),
        ((False, True), {}, "empty (2, 3)"),
    ],
)
def test_old_and_new_call_shapes(
    room: Room, tensor: torch.Tensor, arguments: tuple[Any, ...], keywords: dict[str, Any], expected: str
) -> None:
    pinned = room.pin_memory(tensor, *arguments, **keywords)
    assert room.calls == [expected]
    assert pinned.numel() == 6
    assert pinned.dtype == tensor.dtype
    assert pinned is not tensor
