# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Numbers to integers and back, group by group. A group is a row of a matrix.

Symmetric: integer = x * scale, scale = 2^bits / (2 max|x|). Asymmetric: integer = (x - offset) * scale, scale =
2^bits / (max - min), offset = (max + min) / 2. Integers are rounded to even and limited to what the bits hold.
1 / scale and the offset are kept beside them. Source: Wang et al., arXiv:2306.10209; the layouts are DeepSpeed's.

A group with a NaN or an infinity becomes NaN (or infinite) as a whole, so that an overflow is seen by the receiver.
"""

from __future__ import annotations

import torch


def quantized(values: torch.Tensor, bits: int, asymmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 integers and float32 parameters, a column or two. `values` are float32, and are overwritten.

    Each operation is rounded on its own, in this order, so that every device computes the same.
    """
    if not values.shape[1]:
        return values.to(torch.int8), values.new_ones(values.shape[0], 1 + asymmetric)
    highest, lowest = values.amax(1, keepdim=True), values.amin(1, keepdim=True)
    if asymmetric:
        span, levels = highest - lowest, float(1 << bits)
        offset = highest.add_(lowest).div_(2)
        values.sub_(offset)
    else:
        span, levels = torch.maximum(highest, lowest.neg()), float(1 << (bits - 1))
    # Not `levels / span`, which torch computes as a product with the reciprocal.
    scale = torch.full_like(span, levels).div_(span).masked_fill_(span == 0, 1.0)
    limit = 1 << (bits - 1)
    integers = values.mul_(scale).round_().clamp_(-limit, limit - 1).nan_to_num_(0.0).to(torch.int8)
    parameters = torch.ones_like(scale).div_(scale)
    return integers, torch.cat([parameters, offset], 1) if asymmetric else parameters


def dequantized(integers: torch.Tensor, parameters: torch.Tensor, asymmetric: bool) -> torch.Tensor:
    """Return float32 numbers of integers in rows. `parameters` are those of `quantized`."""
    values = integers.to(torch.float32).mul_(parameters[:, :1])
    return values.add_(parameters[:, 1:2]) if asymmetric else values


def packed(integers: torch.Tensor, bits: int) -> torch.Tensor:
    """Return a flat tensor of int8; of two integers of 4 bits the first is in the low half of the byte."""
    flat = integers.reshape(-1)
    if bits == 8:
        return flat
    pairs = flat.view(-1, 2)
    # Sixteen times the high one is within int8, and the low half is added without a carry.
    return pairs[:, 1] * 16 + (pairs[:, 0] & 15)


def unpacked(data: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the integers in a tensor of bytes; of 4 bits as pairs."""
    flat = data.reshape(-1).view(torch.int8)
    if bits == 8:
        return flat
    low = flat & 15
    return torch.stack([low - 16 * (low > 7).to(torch.int8), flat >> 4], 1)


def swizzled(rows: torch.Tensor, pipeline: int, nodes: int, devices: int) -> torch.Tensor:
    """Return the rows in the order of the first all-to-all of qgZ.

    Rows lie as (node, device, slice, row) before, and as (slice, device, node, row) after it: the parts for one
    device of the own node are side by side.
    """
    parts = rows.view(nodes, devices, pipeline, -1, *rows.shape[1:])
    return parts.permute(2, 1, 0, *range(3, parts.dim())).reshape(rows.shape)


def unswizzled(rows: torch.Tensor, pipeline: int, nodes: int, devices: int) -> torch.Tensor:
    """Return rows in the order before `swizzled`."""
    parts = rows.view(pipeline, devices, nodes, -1, *rows.shape[1:])
    return parts.permute(2, 1, 0, *range(3, parts.dim())).reshape(rows.shape)
