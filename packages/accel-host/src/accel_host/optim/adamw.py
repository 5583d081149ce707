# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""AdamW over the host kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accel_host import kernels
from accel_host.optim import step


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW with another step: same options, same state dict.

    amsgrad is refused (InvalidTensors, a ValueError). Source: arXiv:1711.05101.
    """

    def __init__(self, params: Any, *args: Any, amsgrad: bool = False, **options: Any) -> None:
        if amsgrad:
            raise step.refuse("amsgrad")
        super().__init__(params, *args, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step in place; gives the closure's loss. Raises what `accel_host.kernels.adam` raises."""
        loss = step.loss_of(closure)
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for number, params in step.by_step(group, self.state, _fresh):
                states = [self.state[parameter] for parameter in params]
                kernels.adam(
                    params,
                    [parameter.grad for parameter in params if parameter.grad is not None],
                    [state["exp_avg"] for state in states],
                    [state["exp_avg_sq"] for state in states],
                    step=number,
                    lr=float(group["lr"]),
                    beta1=float(beta1),
                    beta2=float(beta2),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    grad_factor=step.sign(group),
                )
        return loss


def _fresh(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: kernels.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
