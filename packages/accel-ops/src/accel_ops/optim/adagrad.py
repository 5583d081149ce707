# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adagrad on the host kernel."""

from __future__ import annotations

from typing import Any

import torch

from accel_ops import kernels
from accel_ops.optim import base


class Adagrad(base.HostOptimizer, torch.optim.Adagrad):
    """torch.optim.Adagrad with another `step`: same options, same state dict. Source: JMLR 12 (2011)."""

    def _update(self) -> None:
        for group in self.param_groups:

            def new_states(
                parameters: list[torch.Tensor], start: float = group["initial_accumulator_value"]
            ) -> Any:
                return [{"sum": zeros.add_(start)} for zeros in kernels.zeros_like(parameters)]

            for number, params, grads, states in base.group_by_step(self, group, new_states):
                kernels.adagrad(
                    params,
                    grads,
                    [state["sum"] for state in states],
                    lr=float(group["lr"]) / (1 + (number - 1) * group["lr_decay"]),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    grad_factor=base.grad_sign(group),
                )
