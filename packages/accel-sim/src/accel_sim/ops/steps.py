# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Common parts of the vendors' fused operators: optimizer steps on one tensor, in place; norm, rotation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

Tensor = torch.Tensor


def wide(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return detached tensors of at least 32 bits as they are, and float32 copies of others."""
    detached = (tensor.detach() for tensor in tensors)
    return [tensor if tensor.dtype.itemsize >= 4 else tensor.float() for tensor in detached]


def copy_back(narrow: Sequence[Tensor], computed: Sequence[Tensor]) -> None:
    """Copy the float32 copies that `wide` made back into the original tensors, rounded."""
    for original, copy in zip(narrow, computed, strict=True):
        if original.dtype != copy.dtype:
            original.detach().copy_(copy)


def adam(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, lr: float, beta1: float, beta2: float,
    epsilon: float, decay: float, decoupled: bool, correction1: float, correction2: float,
) -> None:  # fmt: skip
    """Adam, or AdamW where the decay is decoupled. The corrections divide the moments (1: none)."""
    p, g, m, v = wide([param, grad, exp_avg, exp_avg_sq])
    if decay and not decoupled:
        g = g + decay * p
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    if decay and decoupled:
        p.mul_(1 - lr * decay)
    p.addcdiv_(m / correction1, (v / correction2).sqrt_().add_(epsilon), value=-lr)
    copy_back([param, exp_avg, exp_avg_sq], [p, m, v])


def adam_lists(
    lists: Sequence[list[Tensor]], numbers: tuple[float, float, float, float, float], step: int, decoupled: bool,
    corrected: bool,
) -> None:  # fmt: skip
    """Adam on lists of gradients, parameters, first and second moments. numbers: lr, betas, epsilon, decay."""
    lr, beta1, beta2, epsilon, decay = numbers
    for grad, param, exp_avg, exp_avg_sq in zip(*lists, strict=True):
        adam(
            param, grad, exp_avg, exp_avg_sq, lr=lr, beta1=beta1, beta2=beta2, epsilon=epsilon, decay=decay,
            decoupled=decoupled, correction1=1 - beta1**step if corrected else 1.0,
            correction2=1 - beta2**step if corrected else 1.0,
        )  # fmt: skip


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float, over: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the norm over some dimensions, and the reciprocal root mean squares in float32."""
    wider = x.float()
    inverse = (wider.square().mean(over, keepdim=True) + epsilon).rsqrt()
    return (wider * inverse * gamma.float()).to(x.dtype), inverse


def rotated(x: Tensor, *, halves: bool) -> Tensor:
    """Return the tensor of a rotary embedding's sines. halves: its last dimension is turned by halves, not by pairs."""
    if halves:
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def swiglu(x: Tensor, dim: int) -> Tensor:
    """Return silu of the first half times the second."""
    first, second = x.float().chunk(2, dim)
    return (functional.silu(first) * second).to(x.dtype)
