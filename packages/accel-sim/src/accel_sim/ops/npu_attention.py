# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.npu.npu_fusion_attention: attention over dense batches, as github.com/Ascend/op-plugin documents it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from accel_sim import errors

Tensor = torch.Tensor
_FULL = "torch.ops.npu.npu_fusion_attention"
#: How each layout becomes (batch, heads, sequence, size of a head), and back.
_ORDERS = {"BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3), "SBND": (1, 2, 0, 3)}
_WAYS_BACK = {"BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3), "SBND": (2, 0, 1, 3)}


def npu_fusion_attention(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str, pse: Tensor | None = None,
    padding_mask: Tensor | None = None, atten_mask: Tensor | None = None, scale: float = 1.0, keep_prob: float = 1.0,
    pre_tockens: int = 2147483647, next_tockens: int = 2147483647, inner_precise: int = 0,
    prefix: Sequence[int] | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, sparse_mode: int = 0, gen_mask_parallel: bool = True,
    sync: bool = False, softmax_layout: str = "", sink: Tensor | None = None, dropout_mask: Tensor | None = None,
    seed: int = 0, offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:  # fmt: skip
    """Dropout(softmax(mask(scale * (pse + q k^T)))) v; the maxima and sums of the softmax; an empty tensor; 0, 0, 0.

    atten_mask: True where nothing is attended to. Sparse modes 0 to 3 and layouts of dense batches are simulated.
    """
    if sparse_mode > 3 or (sink, dropout_mask, padding_mask, actual_seq_qlen) != (None,) * 4:
        errors.raise_not_simulated(
            f"{_FULL} with sparse_mode {sparse_mode}, a sink, a given dropout mask or varying lengths"
        )
    layout = {"BSH": "BSND", "SBH": "SBND"}.get(input_layout, input_layout)
    if layout not in _ORDERS:
        errors.raise_not_simulated(f"{_FULL} with layout {input_layout}")
    flat = len(input_layout) == 3
    size = query.shape[-1] // head_num if flat else query.shape[-1]
    q, k, v = (_by_head(each, layout, size if flat else None) for each in (query, key, value))
    groups = head_num // k.shape[1]
    scores = q @ k.repeat_interleave(groups, 1).transpose(-1, -2)
    scores = (scores if pse is None else scores + pse.float()) * scale
    hidden = _hidden(atten_mask, sparse_mode, scores)
    if hidden is not None:
        scores = scores.masked_fill(hidden, torch.finfo(torch.float32).min)
    greatest = scores.amax(-1, keepdim=True)
    powers = (scores - greatest).exp()
    total = powers.sum(-1, keepdim=True)
    weights = functional.dropout(powers / total, 1 - keep_prob)
    result = (weights @ v.repeat_interleave(groups, 1)).permute(_WAYS_BACK[layout])
    result = result.flatten(-2) if flat else result
    eight = (*greatest.shape[:-1], 8)  # the hardware writes each of them eight times
    return (result.to(query.dtype), greatest.expand(eight).contiguous(), total.expand(eight).contiguous(),
            query.new_empty(0), 0, 0, 0)  # fmt: skip


def _by_head(tensor: Tensor, layout: str, size: int | None) -> Tensor:
    if size is not None:
        tensor = tensor.reshape(*tensor.shape[:-1], -1, size)
    return tensor.float().permute(_ORDERS[layout])


def _hidden(mask: Tensor | None, sparse_mode: int, scores: Tensor) -> Tensor | None:
    """Return the mask of hidden positions. Modes 2 and 3 take a compressed mask, which stands for a triangle."""
    if sparse_mode < 2:
        return None if mask is None else mask.bool()
    rows, columns = scores.shape[-2:]
    first = 1 if sparse_mode == 2 else 1 + columns - rows
    return torch.ones(rows, columns, dtype=torch.bool, device=scores.device).triu(first)
