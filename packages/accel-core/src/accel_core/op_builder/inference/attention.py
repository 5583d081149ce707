# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Parts of attention: masking, rotary embedding, and scaled dot product attention."""

from __future__ import annotations

from functools import cache

import torch
from torch.nn import functional


def blocked(
    mask: torch.Tensor, query: torch.Tensor, keys: torch.Tensor, *, causal: bool, window: int
) -> torch.Tensor | None:
    """Return a bool mask, True where attention is masked: (batch or 1, 1, queries or 1, keys); None if nowhere.

    mask:   the model's mask: additive (values below 0 are masked), or bool (False is masked); 2-D is
            (batch, keys). DeepSpeed passes a 1-D tensor, on any device, for no mask.
    query, keys: (batch, tokens, …); only the number of tokens is used. The queries are the last tokens.
    causal: mask the keys after each query.
    window: number of keys that a query attends to at most, including itself; 0 for all.
    """
    queries, count = query.shape[1], keys.shape[1]
    found = None
    if mask.dim() > 1:
        found = ~mask if mask.dtype == torch.bool else mask < 0
        found = found[:, None, None, :count] if mask.dim() == 2 else found[..., :count]
    if (causal and queries > 1) or window:
        at = torch.arange(count, device=query.device)
        last = at[count - queries :, None]
        outside = at > last if causal else torch.zeros_like(at > last)
        if window:
            outside = outside | (at <= last - window)
        found = outside[None, None] if found is None else found | outside
    return found


@cache
def _frequencies(width: int, theta: float, device: torch.device) -> torch.Tensor:
    return theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width).to(device)


def angles(
    positions: torch.Tensor, width: int, theta: float, *, interleaved: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines, float32 (batch or 1, tokens, 1, width), for positions (batch or 1, tokens).

    interleaved: rotate channel 2i with 2i + 1; otherwise i with i + width / 2. Source: Su et al., arXiv:2104.09864.
    """
    half = positions[..., None].float() * _frequencies(width, theta, positions.device)
    full = half.repeat_interleave(2, dim=-1) if interleaved else torch.cat((half, half), dim=-1)
    return full.cos()[:, :, None], full.sin()[:, :, None]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Rotate pairs of channels of x, (batch, tokens, heads, width), by the angles."""
    if interleaved:
        turned = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    else:
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
    return (x.float() * cos + turned.float() * sin).to(x.dtype)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    hidden: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Attention of (batch, queries, heads, width) to (batch, keys, groups, width), groups dividing heads.

    hidden: the mask that `blocked` returns. bias: added to the scores, (batch, heads, queries or 1, keys).
    """
    if hidden is not None:
        # The smallest number, not -inf: the result of a query with all keys masked is then unused, not NaN.
        bias = query.new_zeros(()) if bias is None else bias.to(query)
        bias = bias.masked_fill(hidden, torch.finfo(query.dtype).min)
    found = functional.scaled_dot_product_attention(
        query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), bias, scale=scale,
        enable_gqa=query.shape[2] != keys.shape[2],
    )  # fmt: skip
    return found.transpose(1, 2)
