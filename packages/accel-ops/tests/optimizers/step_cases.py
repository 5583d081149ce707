# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random steps of Adam and Lion by kernels, and how far they are from float64; the inverse of a step of Adam."""

import random
from typing import Any

import torch

from accel_ops import reference
from accel_ops.optimizers.fused import AdamStep
from accel_ops.optimizers.step_kernels import TYPES, KernelSteps

KINDS = list(TYPES)
Lists = list[list[torch.Tensor]]


def drawn(draw: random.Random, kinds: tuple[torch.dtype, ...], states: int) -> Lists:
    """Return lists of tensors: of any size, views at any element, zeros, and numbers that are not finite."""
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    lists: Lists = [[] for _ in range(2 + states)]
    columns = kinds[0], kinds[1], *[kinds[2]] * states
    for _ in range(draw.choice([1, 2, 5, 45])):
        size = draw.choice([0, 1, 3, 4, 5, 31, 64, 100, 200])
        odd = draw.random() < 0.3
        for place, (column, kind) in enumerate(zip(lists, columns, strict=True)):
            begin = draw.randint(0, 3) if odd else 0
            values = torch.rand(size + begin, generator=generator).add_(1e-3)
            values = (2 * values - 1 if place < 2 else values).to(kind)[begin:]
            if size and draw.random() < 0.05:
                values.zero_()
            elif size and place == 0 and draw.random() < 0.05:
                values[draw.randrange(size)] = draw.choice([float("nan"), float("inf")])
            column.append(values)
    if states == 2:
        # As of means of a number and its square; others make the quotient sensitive to the rounding of the first.
        for m, v in zip(*lists[2:], strict=True):
            v.copy_(m.float().square() * (1 + v.float()))
    return lists


def adam(steps: KernelSteps, draw: random.Random) -> None:
    lists = drawn(draw, draw.choice(KINDS), states=2)
    rates = (
        10 ** draw.uniform(-4, -2),
        draw.uniform(0.5, 0.99),
        draw.uniform(0.5, 0.999),
        10 ** draw.uniform(-8, -2),
    )
    flags = draw.randint(0, 1), draw.randint(0, 1), draw.choice([0.0, draw.uniform(0, 0.2)])
    constants = AdamStep(torch.zeros(1), *rates, draw.choice([1, 2, 1000]), *flags)
    wanted = [[tensor.double() for tensor in column] for column in lists]
    steps.adam(lists, constants)
    reference.step_lists(reference.adam, wanted, **constants.hyperparameters)
    for ours, theirs in zip(lists[1:], wanted[1:], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            near(a, b)


def lion(steps: KernelSteps, draw: random.Random) -> None:
    lists = drawn(draw, draw.choice(KINDS), states=1)
    lr, beta1, beta2 = 10 ** draw.uniform(-4, -1), draw.uniform(0.5, 0.99), draw.uniform(0.5, 0.999)
    constants = lr, beta1, beta2, 1, draw.choice([0.0, draw.uniform(0, 0.2)])
    wanted = [[tensor.double() for tensor in column] for column in lists]
    sums = [beta1 * m + (1 - beta1) * g for g, _, m in zip(*wanted, strict=True)]
    steps.multi_tensor_lion(2048, torch.zeros(1), lists, *constants)
    betas, decay = (beta1, beta2), constants[-1]
    reference.step_lists(reference.lion, wanted, lr=lr, betas=betas, weight_decay=decay, at_zero=-1.0)
    for p, q, total in zip(lists[1], wanted[1], sums, strict=True):
        # Rounding decides the sign of a sum that is nearly 0; exactly 0 has none.
        decided = (total.abs() > 1e-6) | (total == 0) | total.isnan()
        near(p[decided], q[decided])
        assert bool(((p.double() - q).abs()[~decided] <= 2.1 * lr + 0.01).all())
    for m, n in zip(lists[2], wanted[2], strict=True):
        near(m, n)


def near(ours: torch.Tensor, wanted: torch.Tensor) -> None:
    """Within 2 eps of the type, of numbers above 1 relative; non-finite values at the same positions."""
    if not ours.numel():
        return
    error = (ours.double() - wanted).abs() / wanted.abs().clamp(min=1)
    same = (ours.double() == wanted) | (ours.isnan() & wanted.isnan())
    # Numbers that float64 holds and the type does not are infinite.
    same |= ours.isinf() & (wanted.abs() >= torch.finfo(ours.dtype).max * (1 - torch.finfo(ours.dtype).eps))
    worst: Any = torch.where(same, 0.0, error / torch.finfo(ours.dtype).eps).max()
    assert worst <= 2


CASES = (adam, lion)


def undo_adam(
    grad: Any, param: Any, exp_avg: Any, exp_avg_sq: Any, *, step: int, lr: float, betas: tuple[float, float],
    eps: float, weight_decay: float = 0.0, decoupled: bool = True, bias_correction: bool = True,
) -> list[torch.Tensor]:  # fmt: skip
    """Return parameter and both moments before the step of `adam` that made these."""
    unbiased, unbiased_sq = exp_avg, exp_avg_sq
    if bias_correction:
        unbiased, unbiased_sq = exp_avg / (1 - betas[0] ** step), exp_avg_sq / (1 - betas[1] ** step)
    param = param + lr * unbiased / (unbiased_sq.sqrt() + eps)
    param = param / (1 - lr * weight_decay) if decoupled else param
    grad = grad if decoupled or not weight_decay else grad + weight_decay * param
    exp_avg_sq = ((exp_avg_sq - (1 - betas[1]) * grad**2) / betas[1]).clamp(min=0)
    return [param, (exp_avg - (1 - betas[0]) * grad) / betas[0], exp_avg_sq]
