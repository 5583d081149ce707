# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lion on the host kernel; torch has no Lion."""

from __future__ import annotations

from typing import Any

import torch

from accel_ops import kernels
from accel_ops.optim import base


class Lion(base.HostOptimizer):
    """Lion with decoupled weight decay; its state is the momentum `exp_avg`. Source: arXiv:2302.06675.

    Raises ValueError for a negative lr or weight_decay, or betas outside [0, 1).
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        if lr < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"lr={lr}, betas={betas}, weight_decay={weight_decay}: lr and decay from 0, betas in [0, 1)"
            )
        super().__init__(
            params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        )

    def _update(self) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for _, params, grads, states in base.group_by_step(self, group, _new_states):
                kernels.lion(
                    params,
                    grads,
                    [state["exp_avg"] for state in states],
                    lr=float(group["lr"]),
                    beta1=float(beta1),
                    beta2=float(beta2),
                    weight_decay=group["weight_decay"],
                    grad_factor=base.grad_sign(group),
                )


def _new_states(parameters: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    return [{"exp_avg": first} for first in kernels.zeros_like(parameters)]
