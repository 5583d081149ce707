# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the quantizer's kernels take; each function returns why they do not take it, empty if they do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

#: Types of numbers, with their names in kernels. The order is that of `Errors::type` in accel/quantize.h.
DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
#: Elements of an access of a thread.
PACK = 8
_ALIGNMENT = 16
#: Blocks of a launch in the first dimension; what a driver accepts in a 32-bit number.
_MOST_BLOCKS = (1 << 31) - 1
_WARP, _MOST_THREADS = 64, 256  # of AMD's wide warps, which are two of the others


def threads(width: int) -> int:
    """Return the threads of a block for a group of this size: a multiple of the warp's width."""
    wanted = -(-width // PACK)
    return max(_WARP, min(_MOST_THREADS, -(-wanted // _WARP) * _WARP))


def lack_of_width(size: int, groups: int, bits: int, order: Sequence[int] = ()) -> str:
    """Return why a number of elements in groups is not taken.

    order: factors that have to divide the groups.
    """
    if bits not in (4, 8):
        return f"{bits} bits"
    if not size:
        return "no elements"
    if groups < 1 or size % groups or (order and (min(order) < 1 or groups % math.prod(order))):
        return "groups that do not divide"
    if size // groups % PACK:
        return f"groups of {size // groups} elements, no multiple of {PACK}"
    if groups > _MOST_BLOCKS:
        return f"{groups} groups, more than {_MOST_BLOCKS}"
    return ""


def lack_of_numbers(device_type: str, tensors: Sequence[torch.Tensor]) -> str:
    """Return why tensors are not taken as numbers to quantize."""
    other = [str(tensor.dtype) for tensor in tensors if tensor.dtype not in DTYPES]
    return f"numbers of {other[0]}" if other else lack_of_tensors(device_type, tensors)


def lack_of_tensors(device_type: str, tensors: Sequence[torch.Tensor]) -> str:
    """Return why tensors of any type are not taken."""
    for tensor in tensors:
        if tensor.device.type != device_type or tensor.device != tensors[0].device:
            return f"a tensor on {tensor.device}"
        if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_neg():
            return "a tensor that is not contiguous"
        if not tensor.numel():
            return "no elements"
        if tensor.data_ptr() % _ALIGNMENT:
            return f"a view that does not begin at a multiple of {_ALIGNMENT} bytes"
    return ""
