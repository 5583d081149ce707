# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam and AdamW on lists of tensors, and an adapter to the signature of DeepSpeed's `multi_tensor_adam`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from accel_core.op_builder.steps.precision import Tensors, copy_back, wide


class AdamStep(NamedTuple):
    """Arguments of one step, with upstream's names and order.

    noop_flag:   upstream's overflow buffer; its own kernel does not read it.
    step:        number of the step, from 1.
    adam_w_mode: 1: decoupled weight decay; 0: decay added to the gradient (L2).
    """

    noop_flag: torch.Tensor
    lr: float
    beta1: float
    beta2: float
    epsilon: float
    step: int
    adam_w_mode: int
    bias_correction: int
    weight_decay: float


Lists = Sequence[Tensors]
Step = Callable[[Lists, AdamStep], None]


def as_multi_tensor_adam(step: Step) -> Callable[..., None]:
    """Return a `multi_tensor_adam` for deepspeed.ops.adam.FusedAdam that calls `step` on four lists.

    The lists are [gradients, parameters, first moments, second moments], updated in place. chunk_size is used
    by upstream's CUDA kernel only.
    """

    def multi_tensor_adam(
        chunk_size: int, noop_flag_buffer: torch.Tensor, tensor_lists: Lists, *constants: Any
    ) -> None:
        step(tensor_lists, AdamStep(noop_flag_buffer, *constants))

    return multi_tensor_adam


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on tensors of any shapes and float types, computed in float32 or wider.

    Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101.
    """
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    grads, params, exp_avgs, exp_avg_sqs = (wide(tensors) for tensors in lists)
    if weight_decay and not adam_w_mode:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, grads, grads, 1 - beta2)
    correction1 = 1 - beta1**number if bias_correction else 1.0
    correction2 = 1 - beta2**number if bias_correction else 1.0
    denominators = torch._foreach_sqrt(exp_avg_sqs)
    torch._foreach_div_(denominators, correction2**0.5)
    torch._foreach_add_(denominators, epsilon)
    if weight_decay and adam_w_mode:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_addcdiv_(params, exp_avgs, denominators, -lr / correction1)
    for narrow, computed in zip(lists[1:], (params, exp_avgs, exp_avg_sqs), strict=True):
        copy_back(narrow, computed)


multi_tensor_adam = as_multi_tensor_adam(step)
