# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adagrad over the host kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accel_host import kernels
from accel_host.optim import step


class Adagrad(step.HostOptimizer, torch.optim.Adagrad):
    """torch.optim.Adagrad with another step: same options, same state dict. Source: JMLR 12 (2011)."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step in place; gives the closure's loss. Raises what `accel_host.kernels.adagrad` raises."""
        loss = step.loss_of(closure)
        for group in self.param_groups:

            def fresh(
                parameters: list[torch.Tensor], start: float = group["initial_accumulator_value"]
            ) -> Any:
                return [{"sum": zeros.add_(start)} for zeros in kernels.zeros_like(parameters)]

            for number, params, grads, states in step.by_step(group, self.state, fresh):
                kernels.adagrad(
                    params,
                    grads,
                    [state["sum"] for state in states],
                    lr=float(group["lr"]) / (1 + (number - 1) * group["lr_decay"]),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    grad_factor=step.sign(group),
                )
        return loss
