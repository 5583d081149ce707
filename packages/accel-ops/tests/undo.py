# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The inverse of `accel_ops.reference.adam`, by which rollbacks are judged."""

from torch import Tensor

from accel_ops.reference import Betas


def undo_adam(
    grad: Tensor, param: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int, lr: float, betas: Betas, eps: float,
    weight_decay: float = 0.0, decoupled: bool = True, bias_correction: bool = True,
) -> list[Tensor]:  # fmt: skip
    """Return parameter and both moments before the step of `adam` that made these."""
    unbiased, unbiased_sq = exp_avg, exp_avg_sq
    if bias_correction:
        unbiased, unbiased_sq = exp_avg / (1 - betas[0] ** step), exp_avg_sq / (1 - betas[1] ** step)
    param = param + lr * unbiased / (unbiased_sq.sqrt() + eps)
    param = param / (1 - lr * weight_decay) if decoupled else param
    grad = grad if decoupled or not weight_decay else grad + weight_decay * param
    exp_avg_sq = ((exp_avg_sq - (1 - betas[1]) * grad**2) / betas[1]).clamp(min=0)
    return [param, (exp_avg - (1 - betas[0]) * grad) / betas[0], exp_avg_sq]
