# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adagrad on the host, as deepspeed.ops.adagrad.DeepSpeedCPUAdagrad calls it."""

from __future__ import annotations

from typing import Any

import torch

from accel_ops import kernels
from accel_ops.op_builder.base import HostBuilder
from accel_ops.op_builder.host_step import HostStep
from accel_ops.op_builder.registry import OptimizerRegistry

_adagrads: OptimizerRegistry[None] = OptimizerRegistry("adagrad")


def create_adagrad(
    optimizer_id: int,
    alpha: float = 1e-2,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    should_log: bool = False,
) -> int:
    """Register an optimizer; returns 0."""
    return _adagrads.create(optimizer_id, None)


def destroy_adagrad(optimizer_id: int) -> int:
    """Remove the optimizer; returns 0, also where it is unknown."""
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
    *,
    grad_factor: float = 1.0,
    copy: torch.Tensor | None = None,
) -> int:
    """Take one step in place; returns 0.

    The gradient is not changed. Upstream overwrites it, with values that nothing reads.
    """
    _adagrads[optimizer_id]
    kernels.adagrad(
        [params], [grads], [exp_avg_sq], lr=lr, eps=epsilon, weight_decay=weight_decay, grad_factor=grad_factor,
        copies=None if copy is None else [copy],
    )  # fmt: skip
    return 0


class CPUAdagrad(HostStep):
    """Upstream's functions."""

    UPDATE, SCALARS = "adagrad_update", 5
    create_adagrad = staticmethod(create_adagrad)
    adagrad_update = staticmethod(adagrad_update)
    destroy_adagrad = staticmethod(destroy_adagrad)


class CPUAdagradBuilder(HostBuilder):
    """Builds `cpu_adagrad`: Adagrad on one tensor."""

    NAME = "cpu_adagrad"
    BUILD_VAR = "DS_BUILD_CPU_ADAGRAD"

    def functions(self) -> Any:
        """Return upstream's functions."""
        return CPUAdagrad()
