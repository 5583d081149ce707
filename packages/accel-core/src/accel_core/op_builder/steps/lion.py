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
) -> None:
    """Do one step in place on [gradients, parameters, momenta] of any shapes and float types.

    Computed in float32 or wider. sign(0) is 0, as in the paper: a parameter whose gradient and momentum are 0
    does not change (DeepSpeed's CUDA kernel changes it by lr). chunk_size, noop_flag_buffer and step are
    arguments of that kernel and unused here. Source: Chen et al., arXiv:2302.06675.
    """
    grads, params, exp_avgs = (wide(tensors) for tensors in tensor_lists)
    moved = torch._foreach_lerp(exp_avgs, grads, 1 - beta1)
    # torch.sign(NaN) is 0, which would hide the NaN.
    updates = [torch.where(tensor.isnan(), tensor, tensor.sign()) for tensor in moved]
    if weight_decay:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_add_(params, updates, alpha=-lr)
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta2)
    for narrow, computed in zip(tensor_lists[1:], (params, exp_avgs), strict=True):
        copy_back(narrow, computed)
