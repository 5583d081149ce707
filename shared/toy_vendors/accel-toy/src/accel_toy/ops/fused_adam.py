# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam in plain torch, under DeepSpeed's function name and arguments."""

from __future__ import annotations

import torch


def multi_tensor_adam(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: list[list[torch.Tensor]],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    adam_w_mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """One step, in place, over [gradients, parameters, first moments, second moments]; none when flagged."""
    if noop_flag.item():
        return
    correction1 = 1 - beta1**step if bias_correction else 1.0
    correction2 = 1 - beta2**step if bias_correction else 1.0
    for gradient, parameter, exp_avg, exp_avg_sq in zip(*tensor_lists, strict=True):
        if adam_w_mode:
            parameter.mul_(1 - lr * weight_decay)
        else:
            gradient = gradient + weight_decay * parameter
        exp_avg.lerp_(gradient, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        denominator = (exp_avg_sq / correction2).sqrt_().add_(epsilon)
        parameter.addcdiv_(exp_avg, denominator, value=-lr / correction1)
