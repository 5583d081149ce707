# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.npu and torch_npu: what accel-npu and DeepSpeed's own NPU builders call.

Schemas: torch_npu 2.13.0, as it registers them. What they compute: documents and tests of github.com/Ascend/op-plugin,
master 517f2e7d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch.nn import functional

from accel_sim import errors
from accel_sim.ops import Ops, same_device, steps

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


def npu_apply_adam_w(*_arguments: Any) -> NoReturn:
    """Raise: the real operator has a schema and no kernel."""
    raise RuntimeError("npu_apply_adam_w is not implemented for Tensor")


def npu_apply_adam_w_out(
    beta1_power: float, beta2_power: float, lr: float, weight_decay: float, beta1: float, beta2: float,
    epsilon: float, grad: Tensor, max_grad_norm: Tensor | None, amsgrad: bool | None, maximize: bool | None,
    *, out: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """AdamW; multiplies the powers of beta by beta before it corrects with them.

    torch_npu hands all numbers over in the parameter's type (on a 910B): in bfloat16 a beta of 0.999 is 1.
    """
    if amsgrad:
        errors.raise_not_simulated("torch.ops.npu.npu_apply_adam_w with amsgrad")
    param, exp_avg, exp_avg_sq = out
    same_device("npu_apply_adam_w", grad, param, exp_avg, exp_avg_sq)
    beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon = (
        torch.tensor((beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon))
        .to(param.dtype)
        .tolist()
    )
    steps.adam(
        param, -grad if maximize else grad, exp_avg, exp_avg_sq, lr=lr, beta1=beta1, beta2=beta2,
        epsilon=epsilon, decay=weight_decay, decoupled=True,
        correction1=1 - beta1_power * beta1, correction2=1 - beta2_power * beta2,
    )  # fmt: skip
    return param, exp_avg, exp_avg_sq


def npu_rms_norm(input: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Over the dimensions of gamma; also the reciprocal root mean squares, in float32."""
    return steps.rms_norm(input, gamma, epsilon, tuple(range(-gamma.dim(), 0)))


def npu_add_rms_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """The norm of the sum, the reciprocal root mean squares, the sum."""
    total = x1 + x2
    normed, scale = npu_rms_norm(total, gamma, epsilon)
    return normed, scale, total


def npu_rotary_mul(
    input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    """input * r1 + rotated(input) * r2."""
    if rotate is None and rotary_mode not in ("half", "interleave"):
        raise RuntimeError(f"rotary_mode must be half or interleave, found {rotary_mode}")
    x = input.float()
    turned = x @ rotate.float() if rotate is not None else steps.rotated(x, halves=rotary_mode == "half")
    return (x * r1.float() + turned * r2.float()).to(input.dtype)


def npu_apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Tensor, Tensor]:
    """The rotary embedding of both."""
    if layout not in ("BSND", "TND"):
        errors.raise_not_simulated(f"torch.ops.npu.npu_apply_rotary_pos_emb with layout {layout}")
    return npu_rotary_mul(query, cos, sin, rotary_mode), npu_rotary_mul(key, cos, sin, rotary_mode)


def npu_swiglu(input: Tensor, dim: int = -1) -> Tensor:
    """silu of the first half times the second."""
    return steps.swiglu(input, dim)


def npu_geglu(
    input: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False
) -> tuple[Tensor, Tensor]:
    """One half times the gelu of the other, and that gelu. approximate: 0 none, 1 tanh."""
    left, right = input.float().chunk(2, dim)
    gate, value = (left, right) if activate_left else (right, left)
    gelu = functional.gelu(gate, approximate="tanh" if approximate else "none")
    return (value * gelu).to(input.dtype), gelu.to(input.dtype)


def npu_dtype_cast(input: Tensor, dtype: int, input_dtype: int | None = None) -> Tensor:
    """Tensor.to."""
    return input.to(_DTYPES[dtype], copy=True)


def npu_scatter(input: Tensor, indices: Tensor, updates: Tensor, dim: int) -> Tensor:
    """A copy of the input in which each index along the dimension has its update."""
    return input.scatter(dim, indices.long().unsqueeze(dim), updates.unsqueeze(dim))


def npu_dynamic_quant(
    input: Tensor, *, smooth_scales: Tensor | None = None, group_index: Tensor | None = None,
    dst_type: int | None = None, quant_mode: str = "pertoken", dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Integers of each row by its own step, max|x| / 127, and the steps in float32."""
    special = smooth_scales is not None or group_index is not None or quant_mode != "pertoken" or dst_type_max
    if special or dst_type not in (None, 1):
        errors.raise_not_simulated("torch.ops.npu.npu_dynamic_quant with anything but its input and int8")
    if input.dim() < 2 or input.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError(f"npu_dynamic_quant: {input.dim()} dimensions of {input.dtype}")
    x = input.float()
    steps = x.abs().amax(-1) / 127
    return (x / steps.unsqueeze(-1)).round().nan_to_num(0.0, 0.0, 0.0).to(torch.int8), steps


_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip

OPS = Ops("npu", "npu")
OPS.add(npu_apply_adam_w_out, "npu_apply_adam_w.out")
for _function in (
    npu_apply_adam_w, npu_add_rms_norm, npu_apply_rotary_pos_emb, npu_scatter, npu_dynamic_quant,
):  # fmt: skip
    OPS.add(_function)
for _with_backward in (
    npu_rms_norm, npu_rotary_mul, npu_swiglu, npu_geglu, npu_dtype_cast, npu_fusion_attention,
):  # fmt: skip
    OPS.add(_with_backward, differentiable=True)
