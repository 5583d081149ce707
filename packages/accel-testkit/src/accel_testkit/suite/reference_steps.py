# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One step of each optimizer in float64, written from the papers: what the ops of a device are compared with."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def adam(
    grad: Tensor,
    param: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    decoupled: bool,
    corrected: bool,
) -> list[Tensor]:
    """Return parameter and both moments after a step of Adam, or of AdamW if decoupled.

    Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101.
    """
    beta1, beta2 = betas
    if not decoupled:
        grad = grad + decay * param
    first = beta1 * first + (1 - beta1) * grad
    second = beta2 * second + (1 - beta2) * grad**2
    unbiased1 = first / (1 - beta1**step) if corrected else first
    unbiased2 = second / (1 - beta2**step) if corrected else second
    kept = param * (1 - lr * decay) if decoupled else param
    return [kept - lr * unbiased1 / (unbiased2.sqrt() + eps), first, second]


def lion(
    grad: Tensor, param: Tensor, momentum: Tensor, *, lr: float, betas: tuple[float, float], decay: float
) -> list[Tensor]:
    """Return parameter and momentum after a step of Lion. Source: Chen et al., arXiv:2302.06675."""
    direction = torch.sign(betas[0] * momentum + (1 - betas[0]) * grad)
    return [param - lr * (direction + decay * param), betas[1] * momentum + (1 - betas[1]) * grad]


def adagrad(
    grad: Tensor, param: Tensor, total: Tensor, *, lr: float, eps: float, decay: float
) -> list[Tensor]:
    """Return parameter and sum of squares after a step of Adagrad. Source: Duchi et al., JMLR 12 (2011)."""
    grad = grad + decay * param
    total = total + grad**2
    return [param - lr * grad / (total.sqrt() + eps), total]


def lamb(
    grad: Tensor,
    param: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    corrected: bool,
    scale: float,
    bounds: tuple[float, float],
    eps_inside: bool,
) -> list[Tensor]:
    """Return parameter, both moments and trust ratio after a step of LAMB. Source: You et al., arXiv:1904.00962.

    As DeepSpeed's: the correction of the bias is part of the rate, and the ratio is kept within bounds (least, most).
    """
    beta1, beta2 = betas
    grad = grad / scale
    first = beta1 * first + (1 - beta1) * grad
    second = beta2 * second + (1 - beta2) * grad**2
    below = (second + eps).sqrt() if eps_inside else second.sqrt() + eps
    update = first / below + decay * param
    norms = param.norm(), update.norm()
    ratio = torch.ones((), dtype=param.dtype)
    if norms[0] != 0 and norms[1] != 0:
        ratio = (norms[0] / norms[1]).clamp(*bounds)
    rate = lr * ((1 - beta2**step) ** 0.5 / (1 - beta1**step) if corrected else 1.0)
    return [param - rate * ratio * update, first, second, ratio]
