# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam and AdamW over lists of tensors, with the arguments of DeepSpeed's `multi_tensor_adam`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from accel_core.foreach.precision import Tensors, copy_back, wide


def multi_tensor_adam(
    chunk_size: int,
    noop_flag_buffer: torch.Tensor,
    tensor_lists: Sequence[Tensors],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    adam_w_mode: int,
    bias_correction: int,
    weight_decay: float,
    *args: Any,
) -> None:
    """One step in place on [gradients, parameters, first moments, second moments], any shapes and float types.

    Computed in float32 or wider. adam_w_mode: 1 decouples the decay from the gradient, 0 adds it to the
    gradient (L2). chunk_size and noop_flag_buffer steer upstream's CUDA kernel, which does not read the
    latter either. Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101.
    """
    grads, params, exp_avgs, exp_avg_sqs = (wide(tensors) for tensors in tensor_lists)
    if weight_decay and not adam_w_mode:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, grads, grads, 1 - beta2)
    correction1 = 1 - beta1**step if bias_correction else 1.0
    correction2 = 1 - beta2**step if bias_correction else 1.0
    denominators = torch._foreach_sqrt(exp_avg_sqs)
    torch._foreach_div_(denominators, correction2**0.5)
    torch._foreach_add_(denominators, epsilon)
    if weight_decay and adam_w_mode:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_addcdiv_(params, exp_avgs, denominators, -lr / correction1)
    for narrow, computed in zip(tensor_lists[1:], (params, exp_avgs, exp_avg_sqs), strict=True):
        copy_back(narrow, computed)
