# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""AdamW on the host kernel."""

from __future__ import annotations

import operator

import torch

from accel_ops import kernels
from accel_ops.optim import base

_FIRST, _SECOND = operator.itemgetter("exp_avg"), operator.itemgetter("exp_avg_sq")


class AdamW(base.HostOptimizer, torch.optim.AdamW):
    """torch.optim.AdamW with another `step`: same options, same state dict.

    Raises InvalidTensors (a ValueError) for amsgrad, differentiable and capturable. Source: arXiv:1711.05101.
    """

    def _update(self) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            options = (float(group["lr"]), float(beta1), float(beta2), group["eps"], group["weight_decay"])
            for same_step in base.group_by_step(self, group, _new_states):
                _step(same_step, options, base.grad_sign(group))


def _step(same_step: base.StepGroup, options: tuple[float, float, float, float, float], sign: float) -> None:
    number, params, grads, states = same_step
    first, second = list(map(_FIRST, states)), list(map(_SECOND, states))
    if len(params) == 1 and kernels.adam_single_tensor(
        params[0], grads[0], first[0], second[0], number, *options, True, True, sign
    ):
        return
    lr, beta1, beta2, eps, weight_decay = options
    kernels.adam(
        params, grads, first, second, step=number, lr=lr, beta1=beta1, beta2=beta2, eps=eps,
        weight_decay=weight_decay, grad_factor=sign,
    )  # fmt: skip


def _new_states(parameters: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    states = zip(kernels.zeros_like(parameters), kernels.zeros_like(parameters), strict=True)
    return [{"exp_avg": first, "exp_avg_sq": second} for first, second in states]
