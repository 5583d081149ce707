# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lion over lists of tensors, with the arguments of DeepSpeed's `multi_tensor_lion`."""

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
    """One step in place on [gradients, parameters, momenta], any shapes and float types.

    Computed in float32 or wider. sign(0) is 0, as in the paper: a parameter without gradient and momentum
    does not move (DeepSpeed's CUDA kernel moves it by lr). chunk_size, noop_flag_buffer and step steer that
    kernel and are not read. Source: Chen et al., arXiv:2302.06675.
    """
    grads, params, exp_avgs = (wide(tensors) for tensors in tensor_lists)
    moved = torch._foreach_lerp(exp_avgs, grads, 1 - beta1)
    # torch's sign of a NaN is 0, which would hide it from the parameter for good.
    updates = [torch.where(tensor.isnan(), tensor, tensor.sign()) for tensor in moved]
    if weight_decay:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_add_(params, updates, alpha=-lr)
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta2)
    for narrow, computed in zip(tensor_lists[1:], (params, exp_avgs), strict=True):
        copy_back(narrow, computed)
