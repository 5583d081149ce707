# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The kernels in plain torch, for machines without the library."""

from __future__ import annotations

from ctypes import c_double

import torch

from accel_ops.host.c_interface import AdamOptions
from accel_ops.optimizers import fused
from accel_ops.optimizers.ctypes_tensors import Roles
from accel_ops.optimizers.fused import AdamStep, copy_back, multi_tensor_lion, wide
from accel_ops.optimizers.fused import Tensors as Wide

_UNUSED = torch.empty(0)


def adam(roles: Roles, o: AdamOptions) -> None:
    """Compute `accel_ops.optimizers.cpu_steps.adam`."""
    lists = [_scaled(roles, o.grad_factor), *(list(roles[role]) for role in ("params", "first", "second"))]
    fused.adam_step(
        lists,
        AdamStep(
            _UNUSED, o.lr, o.beta1, o.beta2, o.eps, o.step, o.decoupled, o.bias_correction, o.weight_decay
        ),
    )
    _write_copies(roles)


def adam_rollback(roles: Roles, o: AdamOptions) -> None:
    """Compute `accel_ops.optimizers.cpu_steps.adam` with `rollback`."""
    grads = _scaled(roles, o.grad_factor)
    correction1 = 1 - o.beta1**o.step if o.bias_correction else 1.0
    correction2 = 1 - o.beta2**o.step if o.bias_correction else 1.0
    keep = 1 - o.lr * o.weight_decay if o.decoupled else 1.0
    for param, grad, exp_avg, exp_avg_sq in zip(
        roles["params"], grads, roles["first"], roles["second"], strict=True
    ):
        p, m, v = wide([param, exp_avg, exp_avg_sq])
        p.add_(o.lr / correction1 * (m / ((v / correction2).sqrt() + o.eps))).div_(keep)
        g = grad.float() + o.weight_decay * p if o.weight_decay and not o.decoupled else grad.float()
        m.sub_((1 - o.beta1) * g).div_(o.beta1)
        v.sub_((1 - o.beta2) * g * g).div_(o.beta2).clamp_(min=0)
        copy_back([param, exp_avg, exp_avg_sq], [p, m, v])
    _write_copies(roles)


def adagrad(roles: Roles, lr: float, eps: float, weight_decay: float, grad_factor: float) -> None:
    """Compute `accel_ops.optimizers.cpu_steps.adagrad`."""
    params, grads, sums = wide(roles["params"]), wide(_scaled(roles, grad_factor)), wide(roles["first"])
    if weight_decay:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_addcmul_(sums, grads, grads)
    denominators = torch._foreach_sqrt(sums)
    torch._foreach_add_(denominators, eps)
    torch._foreach_addcdiv_(params, grads, denominators, -lr)
    _store(roles, params, sums)


def lion(
    roles: Roles,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    grad_factor: float,
    at_zero: float,
) -> None:
    """Compute `accel_ops.optimizers.cpu_steps.lion`."""
    lists = [_scaled(roles, grad_factor), list(roles["params"]), list(roles["first"])]
    multi_tensor_lion(0, _UNUSED, lists, lr, beta1, beta2, 1, weight_decay, at_zero=at_zero)
    _write_copies(roles)


def sum_of_squares(roles: Roles, result: c_double) -> None:
    """Compute `accel_ops.optimizers.cpu_steps.sum_of_squares`."""
    result.value = sum(float(tensor.double().square().sum()) for tensor in roles["grads"])


def _scaled(roles: Roles, factor: float) -> Wide:
    return [g.detach() if factor == 1 else g.detach().float() * factor for g in roles["grads"]]


def _store(roles: Roles, params: Wide, states: Wide) -> None:
    copy_back([*roles["params"], *roles["first"]], [*params, *states])
    _write_copies(roles)


def _write_copies(roles: Roles) -> None:
    for copy, param in zip(roles.get("copies", ()), roles["params"], strict=False):
        copy.copy_(param)
