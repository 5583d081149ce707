# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lion on the host, as deepspeed.ops.lion calls it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from accel_ops import kernels
from accel_ops.op_builder.base import HostBuilder
from accel_ops.op_builder.host_step import HostStep
from accel_ops.op_builder.registry import OptimizerRegistry

_lions: OptimizerRegistry[None] = OptimizerRegistry("lion")


def create_lion(
    optimizer_id: int,
    alpha: float = 1e-3,
    betta1: float = 0.9,
    betta2: float = 0.999,
    weight_decay: float = 0.0,
    should_log: bool = False,
) -> int:
    """Register an optimizer; returns 0."""
    return _lions.create(optimizer_id, None)


def destroy_lion(optimizer_id: int) -> int:
    """Remove the optimizer; returns 0, also where it is unknown."""
    return _lions.destroy(optimizer_id)


def lion_update(
    optimizer_id: int,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    params: torch.Tensor,
    grads: torch.Tensor,
    exp_avg: torch.Tensor,
    *,
    grad_factor: float = 1.0,
    copy: torch.Tensor | None = None,
) -> int:
    """Take one step in place; returns 0."""
    _lions[optimizer_id]
    kernels.lion(
        [params], [grads], [exp_avg], lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay,
        grad_factor=grad_factor, copies=None if copy is None else [copy],
    )  # fmt: skip
    return 0


def multi_tensor_lion(
    chunk_size: int,
    noop_flag_buffer: torch.Tensor,
    tensor_lists: list[list[torch.Tensor]],
    lr: float,
    beta1: float,
    beta2: float,
    step: int,
    weight_decay: float,
) -> None:
    """Take one step on [gradients, parameters, momenta], as deepspeed.ops.lion.FusedLion calls it.

    A parameter whose gradient and momentum are 0 grows by lr, as in DeepSpeed's kernel for CUDA.
    """
    grads, params, exp_avgs = tensor_lists
    kernels.lion(
        params, grads, exp_avgs, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, at_zero=-1.0
    )


class CPULion(HostStep):
    """Upstream's functions."""

    UPDATE, SCALARS = "lion_update", 6
    create_lion = staticmethod(create_lion)
    lion_update = staticmethod(lion_update)
    destroy_lion = staticmethod(destroy_lion)


class CPULionBuilder(HostBuilder):
    """Builds `cpu_lion`: Lion on one tensor."""

    NAME = "cpu_lion"
    BUILD_VAR = "DS_BUILD_CPU_LION"

    def functions(self) -> Any:
        """Return upstream's functions."""
        return CPULion()


class FusedLionBuilder(HostBuilder):
    """Builds `fused_lion`: Lion on many tensors in host memory in one call."""

    NAME = "fused_lion"
    BUILD_VAR = "DS_BUILD_FUSED_LION"

    def functions(self) -> Any:
        """Return upstream's function."""
        return SimpleNamespace(multi_tensor_lion=multi_tensor_lion)
