# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a call share memory, told from their addresses, shapes and strides.

The library looks by itself at what it is given. This is for what it does not see: lists that it gets as several calls,
tensors that it gets as copies, and the way without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch


def shared(roles: Mapping[str, Sequence[torch.Tensor]]) -> bool:
    """Whether a tensor of any role but the gradients shares memory with another, or with itself."""
    written_to = read_to = 0
    for begin, end, written in sorted(_ranges(roles)):
        if begin < written_to or (written and begin < read_to):
            return True
        if written:
            written_to = max(written_to, end)
        else:
            read_to = max(read_to, end)
    return any(_folded(tensor) for role, tensors in roles.items() if role != "grads" for tensor in tensors)


def dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill its memory without gaps, in whatever order of dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of its first byte, and of the first beyond its last."""
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


def _folded(tensor: torch.Tensor) -> bool:
    """Whether two of its elements may lie at one address: an expanded tensor, or one of odd strides."""
    reach = 0
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1:
            if stride <= reach:
                return True
            reach += (length - 1) * stride
    return False
