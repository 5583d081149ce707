# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.torch_mlu: the fused optimizers.

Schemas: github.com/Cambricon/torch_mlu, branch r2.4_develop. What they compute: its tests, and NVIDIA apex, whose names
and order of arguments they have.
"""

from __future__ import annotations

import torch

from accel_sim.ops import Ops, same_device, steps

Tensor = torch.Tensor
Tensors = list[Tensor]


def fused_adam(
    _dummy_overflow_buf: Tensor, grads: Tensors, params: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    learning_rate: float, beta1: float, beta2: float, epsilon: float, step: int, mode: int, bias_correction: int,
    weight_decay: float,
) -> bool:  # fmt: skip
    """mode: 0 adds the decay to the gradient, 1 is AdamW."""
    same_device("fused_adam", _dummy_overflow_buf, *grads, *params, *exp_avgs, *exp_avg_sqs)
    for grad, param, exp_avg, exp_avg_sq in zip(grads, params, exp_avgs, exp_avg_sqs, strict=True):
        steps.adam(
            param, grad, exp_avg, exp_avg_sq, lr=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon,
            decay=weight_decay, decoupled=mode == 1,
            correction1=1 - beta1**step if bias_correction else 1.0,
            correction2=1 - beta2**step if bias_correction else 1.0,
        )  # fmt: skip
    return True


def fused_lamb(
    _dummy_overflow_buf: Tensor, grads: Tensors, params: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    learning_rate: float, beta1: float, beta2: float, epsilon: float, step: int, bias_correction: int,
    weight_decay: float, grad_averaging: int, mode: int, global_grad_norm: Tensor, max_grad_norm: float,
    use_nvlamb_python: bool,
) -> bool:  # fmt: skip
    """LAMB with the gradients clipped to a norm. The trust ratio is 1 without decay, unless use_nvlamb_python."""
    same_device("fused_lamb", global_grad_norm, *grads, *params, *exp_avgs, *exp_avg_sqs)
    clip = torch.where(global_grad_norm > max_grad_norm, global_grad_norm / max_grad_norm, 1.0)
    for grad, param, exp_avg, exp_avg_sq in zip(grads, params, exp_avgs, exp_avg_sqs, strict=True):
        update = steps.lamb_direction(
            param, grad.float() / clip, exp_avg, exp_avg_sq, beta1=beta1, beta2=beta2, epsilon=epsilon,
            decay=weight_decay, decoupled=mode == 1, averaging=bool(grad_averaging),
            correction1=1 - beta1**step if bias_correction else 1.0,
            correction2=1 - beta2**step if bias_correction else 1.0,
        )  # fmt: skip
        if use_nvlamb_python or weight_decay:
            update = update * steps.trust_ratio(param.float().norm(), update.norm())
        param.detach().copy_(param.float() - learning_rate * update)
    return True


def fused_sgd(
    _dummy_overflow_buf: Tensor, grads: Tensors, params_in: Tensors, momentums: Tensors,
    params_out: list[Tensor | None], weight_decay: float, momentum: float, dampening: float, learning_rate: float,
    nesterov: bool, first_run: bool, wd_after_momentum: bool, scale: float,
) -> bool:  # fmt: skip
    """SGD; params_out take the new parameters in their own type."""
    same_device("fused_sgd", *grads, *params_in, *momentums)
    for grad, param, buffer in zip(grads, params_in, momentums, strict=True):
        steps.sgd(
            param, grad, buffer, lr=learning_rate, momentum=momentum, dampening=dampening, decay=weight_decay,
            nesterov=nesterov, first=first_run, decay_after=wd_after_momentum, scale=scale,
        )  # fmt: skip
    for param, copy in zip(params_in, params_out, strict=False):
        if copy is not None:
            copy.detach().copy_(param)
    return True


def fused_l2_norm(
    _dummy_overflow_buf: Tensor, inputs: Tensors, per_tensor: bool | None
) -> tuple[Tensor, Tensor]:
    """The norm of all, and of each (empty unless per_tensor), in float32."""
    same_device("fused_l2_norm", _dummy_overflow_buf, *inputs)
    norms = torch.stack([each.float().norm() for each in inputs])
    return norms.norm().reshape(1), norms if per_tensor else norms.new_empty(0)


OPS = Ops("mlu", "torch_mlu")
for _function in (fused_adam, fused_lamb, fused_sgd, fused_l2_norm):
    OPS.add(_function)
