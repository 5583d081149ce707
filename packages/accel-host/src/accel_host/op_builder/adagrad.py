# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adagrad on the host, as deepspeed.ops.adagrad.DeepSpeedCPUAdagrad calls it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from accel_host import kernels
from accel_host.op_builder.base import HostBuilder
from accel_host.op_builder.optimizers import Optimizers

_adagrads: Optimizers[None] = Optimizers("adagrad")


def create_adagrad(
    optimizer_id: int,
    alpha: float = 1e-2,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    should_log: bool = False,
) -> int:
    """Remember an optimizer; 0."""
    return _adagrads.create(optimizer_id, None)


def destroy_adagrad(optimizer_id: int) -> int:
    """Forget it; 0, also where it is forgotten already."""
    return _adagrads.destroy(optimizer_id)


def adagrad_update(
    optimizer_id: int,
    step: int,
    lr: float,
    epsilon: float,
    weight_decay: float,
    params: torch.Tensor,
    grads: torch.Tensor,
    exp_avg_sq: torch.Tensor,
) -> int:
    """One step in place. The gradient is left as it is; upstream overwrites it, which nothing reads."""
    _adagrads[optimizer_id]
    kernels.adagrad([params], [grads], [exp_avg_sq], lr=lr, eps=epsilon, weight_decay=weight_decay)
    return 0


class CPUAdagradBuilder(HostBuilder):
    """Adagrad."""

    NAME = "cpu_adagrad"
    BUILD_VAR = "DS_BUILD_CPU_ADAGRAD"

    def functions(self) -> Any:
        """Upstream's functions."""
        return SimpleNamespace(
            create_adagrad=create_adagrad, adagrad_update=adagrad_update, destroy_adagrad=destroy_adagrad
        )
