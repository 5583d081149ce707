# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""LAMB for one tensor, with the arguments of the `lamb` function that DeepSpeed's FusedLamb calls."""

from __future__ import annotations

import torch

from accel_core.op_builder.steps.precision import copy_back, wide


def lamb(
    param: torch.Tensor,
    param_copy: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    grad: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    max_coeff: float,
    min_coeff: float,
    epsilon: float,
    combined_scale: float,
    step: int,
    eps_mode: int,
    bias_correction: int,
    weight_decay: float,
) -> torch.Tensor:
    """Do one step in place; returns the trust ratio, a scalar tensor on the device.

    param_copy: output for the updated parameter in another dtype; empty for none.
    eps_mode:   0: epsilon is added under the square root; 1: outside.
    combined_scale: divisor of the gradient.
    Does not synchronize with the host. Source: You et al., arXiv:1904.00962.
    """
    p, m, v, g = wide([param, exp_avg, exp_avg_sq, grad])
    g = g / combined_scale if combined_scale != 1 else g
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    denominator = (v + epsilon).sqrt_() if eps_mode == 0 else v.sqrt().add_(epsilon)
    update = (m / denominator).add_(p, alpha=weight_decay)
    p_norm, update_norm = torch._foreach_norm([p, update])
    ratio = (p_norm / update_norm).clamp(min_coeff, max_coeff)
    ratio = torch.where((p_norm == 0) | (update_norm == 0), torch.ones_like(ratio), ratio)
    correction = (1 - beta2**step) ** 0.5 / (1 - beta1**step) if bias_correction else 1.0
    p.sub_(update.mul_(ratio), alpha=lr * correction)
    copy_back([param, exp_avg, exp_avg_sq], [p, m, v])
    if param_copy.numel():
        param_copy.copy_(p)
    return ratio
