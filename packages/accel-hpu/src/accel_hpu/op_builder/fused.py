# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with Habana's op; Lamb and Lion, without a matching op, in plain torch."""

from __future__ import annotations

import math
from typing import Any

import torch

from accel_ops.optimizers.fused import ADAM, AdamStep, Lists, Tensors, copy_back, runtime_adam, wide

#: The largest float32 below 1; larger factors are rounded to 1.
_BELOW_ONE = 1 - 2**-24


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments], computed in float32."""
    if not lists[0]:
        return  # the op rejects empty lists
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    grads, params, exp_avgs, exp_avg_sqs = (wide(tensors) for tensors in lists)
    if weight_decay and not adam_w_mode:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    root = math.sqrt(1 - beta2**number) if bias_correction else 1.0
    step_size = lr * root / (1 - beta1**number) if bias_correction else lr
    # The op adds epsilon to the root of the uncorrected second moment, Adam to that of the corrected one. Dividing
    # gradients and moments by `root` before makes both equal. A changing epsilon would recompile every step.
    scales = bool(epsilon) and root < _BELOW_ONE
    if scales:
        grads = list(torch._foreach_mul(grads, _on_device(1 / root, params)))
        _scale(exp_avgs, exp_avg_sqs, 1 / root)
    _call(
        [grads, params, exp_avgs, exp_avg_sqs],
        (_on_device(-step_size, params).reshape(1), beta1, beta2, epsilon),
        1 - lr * weight_decay if adam_w_mode else 1.0,
    )
    if scales:
        _scale(exp_avgs, exp_avg_sqs, root)
    for narrow, computed in zip(lists[1:], (params, exp_avgs, exp_avg_sqs), strict=True):
        copy_back(narrow, computed)


def _scale(exp_avgs: Tensors, exp_avg_sqs: Tensors, factor: float) -> None:
    torch._foreach_mul_(exp_avgs, _on_device(factor, exp_avgs))
    torch._foreach_mul_(exp_avg_sqs, _on_device(factor * factor, exp_avgs))


def _on_device(number: float, tensors: Tensors) -> torch.Tensor:
    # A Python number is a constant of the compiled graph; a number that changes has to be a tensor.
    return torch.tensor(number, dtype=torch.float32).to(tensors[0].device, non_blocking=True)


def _call(lists: list[Tensors], hyper: tuple[Any, ...], decay: float) -> None:
    """Call the op of the mode: in lazy mode the decay is a number, in eager mode a tensor and a flag."""
    from habana_frameworks.torch.core.step_closure import _mark_step_if_lazy

    op = torch.ops.hpu.optimizer_adamw.default
    eager = any(argument.name == "has_weight_decay" for argument in op._schema.arguments)
    # A separate graph, which is compiled once, independent of earlier operations.
    _mark_step_if_lazy()
    if eager:
        op(*lists, *hyper, _on_device(decay, lists[1]).reshape(1), decay != 1.0)
    else:
        op(*lists, *hyper, decay)
    _mark_step_if_lazy()


FusedAdamBuilder = ADAM.builder(__name__, runtime_adam("hpu.optimizer_adamw", step))
