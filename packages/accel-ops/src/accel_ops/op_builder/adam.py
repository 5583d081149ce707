# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam on the host, as deepspeed.ops.adam.DeepSpeedCPUAdam calls it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from accel_core.op_builder import OpFunctions
from accel_ops import fast, kernels, library, zenflow
from accel_ops.fused_optimizers import AdamStep, Lists, as_multi_tensor_adam
from accel_ops.op_builder.base import HostBuilder
from accel_ops.op_builder.host_step import HostStep
from accel_ops.op_builder.registry import OptimizerRegistry

#: Whether the decay is decoupled, by optimizer ID: the one option that upstream does not pass at every step.
_adams: OptimizerRegistry[bool] = OptimizerRegistry("adam")
_zenflow = zenflow.ZenFlow(_adams)


def create_adam(
    optimizer_id: int,
    alpha: float = 1e-3,
    betta1: float = 0.9,
    betta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    adamw_mode: bool = True,
    should_log: bool = False,
) -> int:
    """Register an optimizer; returns 0."""
    return _adams.create(optimizer_id, bool(adamw_mode))


def destroy_adam(optimizer_id: int) -> int:
    """Remove the optimizer; returns 0, also where it is unknown."""
    return _adams.destroy(optimizer_id)


def adam_update(
    optimizer_id: int,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    bias_correction: bool,
    params: torch.Tensor,
    grads: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    *,
    rollback: bool = False,
    grad_factor: float = 1.0,
    copy: torch.Tensor | None = None,
) -> int:
    """Take one step in place; returns 0. Raises UnknownOptimizer and what `kernels.adam` raises.

    grad_factor, copy: see `HostStep.fused`; upstream has neither.
    """
    decoupled = _adams[optimizer_id]
    if not rollback and copy is None and kernels.adam_single_tensor(
        params, grads, exp_avg, exp_avg_sq, step, lr, beta1, beta2, epsilon, weight_decay, decoupled, bias_correction,
        grad_factor,
    ):  # fmt: skip
        return 0
    kernels.adam(
        [params], [grads], [exp_avg], [exp_avg_sq], step=step, lr=lr, beta1=beta1, beta2=beta2, eps=epsilon,
        weight_decay=weight_decay, decoupled=decoupled, bias_correction=bool(bias_correction), rollback=rollback,
        grad_factor=grad_factor, copies=None if copy is None else [copy],
    )  # fmt: skip
    return 0


def adam_rollback(*arguments: Any) -> int:
    """Undo the step that was taken with the same arguments, up to rounding."""
    return adam_update(*arguments, rollback=True)


def step(lists: Lists, adam: AdamStep) -> None:
    """Take one step in place on [gradients, parameters, first moments, second moments] in host memory."""
    grads, params, exp_avgs, exp_avg_sqs = lists
    kernels.adam(
        params, grads, exp_avgs, exp_avg_sqs, step=adam.step, lr=adam.lr, beta1=adam.beta1, beta2=adam.beta2,
        eps=adam.epsilon, weight_decay=adam.weight_decay, decoupled=bool(adam.adam_w_mode),
        bias_correction=bool(adam.bias_correction),
    )  # fmt: skip


class CPUAdam(HostStep, OpFunctions):
    """Upstream's functions; those of ZenFlow take its overlapped step."""

    OP = "cpu_adam"
    UPDATE, SCALARS = "adam_update", 8
    create_adam = staticmethod(create_adam)
    adam_update: Any = staticmethod(adam_update)
    adam_rollback = staticmethod(adam_rollback)
    destroy_adam = staticmethod(destroy_adam)

    zenflow_adam_create = staticmethod(_zenflow.create)
    zenflow_adam_register_group = staticmethod(_zenflow.register_group)
    zenflow_adam_run_worker = staticmethod(_zenflow.run_worker)
    zenflow_adam_destroy = staticmethod(_zenflow.destroy)
    zenflow_adam_ctrl_size = staticmethod(zenflow.ctrl_size)
    zenflow_adam_ctrl_init = staticmethod(zenflow.ctrl_init)
    zenflow_adam_ctrl_exit = staticmethod(zenflow.ctrl_exit)
    zenflow_adam_submit = staticmethod(zenflow.submit)
    zenflow_adam_wait = staticmethod(zenflow.wait)

    def __init__(self) -> None:
        self.adam_update = fast.adam_update(library.load().functions, _adams.options, adam_update)

    def __reduce__(self) -> tuple[type[CPUAdam], tuple[()]]:
        return CPUAdam, ()  # a builtin function of the library cannot be pickled


class CPUAdamBuilder(HostBuilder):
    """Builds `cpu_adam`: Adam and AdamW on one tensor, the optimizer of ZeRO-Offload."""

    NAME = "cpu_adam"
    BUILD_VAR = "DS_BUILD_CPU_ADAM"

    def functions(self) -> Any:
        """Return upstream's functions."""
        return CPUAdam()


class FusedAdamBuilder(HostBuilder):
    """Builds `fused_adam`: Adam on many tensors in host memory in one call."""

    NAME = "fused_adam"
    BUILD_VAR = "DS_BUILD_FUSED_ADAM"

    def functions(self) -> Any:
        """Return upstream's function."""
        return SimpleNamespace(multi_tensor_adam=as_multi_tensor_adam(step))
