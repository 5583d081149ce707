# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a call share memory, computed from their addresses, shapes and strides.

The library checks the tensors of each call itself. This module is for what it does not see: lists that are divided into
several calls, tensors that are passed as contiguous copies, and machines without the library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch


def share_memory(roles: Mapping[str, Sequence[torch.Tensor]]) -> bool:
    """Return whether a tensor of any role but the gradients shares memory with another, or with itself."""
    written_end = read_end = 0
    for begin, end, written in sorted(_ranges(roles)):
        if begin < written_end or (written and begin < read_end):
            return True
        if written:
            written_end = max(written_end, end)
        else:
            read_end = max(read_end, end)
    return any(
        _overlaps_itself(tensor) for role, tensors in roles.items() if role != "grads" for tensor in tensors
    )


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill the memory without gaps, in any order of dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the address of the first byte, and that after the last byte."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    steps = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (steps + 1) * tensor.element_size()


def _ranges(roles: Mapping[str, Sequence[torch.Tensor]]) -> Iterator[tuple[int, int, bool]]:
    for role, tensors in roles.items():
        for tensor in tensors:
            if tensor.numel():
                yield *extent(tensor), role != "grads"


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether two elements may have one address, as in an expanded tensor or with unusual strides."""
    reach = 0
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1:
            if stride <= reach:
                return True
            reach += (length - 1) * stride
    return False
