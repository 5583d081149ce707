# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lion on lists of tensors, with the arguments of DeepSpeed's `multi_tensor_lion`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from accel_core.op_builder.steps.precision import Tensors, copy_back, wide


def multi_tensor_lion(
    chunk_size: int,
    noop_flag_buffer: torch.Tensor,
    tensor_lists: Sequence[Tensors],
    lr: float,
    beta1: float,
    beta2: float,
    step: int,
    weight_decay: float,
    *,
    at_zero: float = -1.0,
) -> None:
    """Do one step in place on [gradients, parameters, momenta] of any shapes and float types.

    Computed in float32 or wider. As in DeepSpeed's CUDA kernel, a parameter whose gradient and momentum are 0 grows
    by lr, and noop_flag_buffer is not read: infinite and NaN gradients reach the parameters. at_zero: the direction
    where both are 0; in the paper it is 0.
    chunk_size and step are arguments of that kernel, too, and unused. Source: Chen et al., arXiv:2302.06675.
    """
    grads, params, exp_avgs = (wide(tensors) for tensors in tensor_lists)
    moved = torch._foreach_lerp(exp_avgs, grads, 1 - beta1)
    # torch.sign(NaN) is 0, which would hide the NaN.
    signs = [tensor.sign().where(tensor != 0, at_zero) for tensor in moved]
    updates = [torch.where(tensor.isnan(), tensor, sign) for tensor, sign in zip(moved, signs, strict=True)]
    if weight_decay:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_add_(params, updates, alpha=-lr)
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta2)
    for narrow, computed in zip(tensor_lists[1:], (params, exp_avgs), strict=True):
        copy_back(narrow, computed)
