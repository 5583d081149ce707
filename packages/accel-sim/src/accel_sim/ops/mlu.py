# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.torch_mlu: fused Adam and the norm.

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
    numbers = learning_rate, beta1, beta2, epsilon, weight_decay
    steps.adam_lists([grads, params, exp_avgs, exp_avg_sqs], numbers, step, mode == 1, bool(bias_correction))
    return True


def fused_l2_norm(
    _dummy_overflow_buf: Tensor, inputs: Tensors, per_tensor: bool | None
) -> tuple[Tensor, Tensor]:
    """The norm of all, and of each (empty unless per_tensor), in float32."""
    same_device("fused_l2_norm", _dummy_overflow_buf, *inputs)
    norms = torch.stack([each.float().norm() for each in inputs])
    return norms.norm().reshape(1), norms if per_tensor else norms.new_empty(0)


OPS = Ops("mlu", "torch_mlu")
for _function in (fused_adam, fused_l2_norm):
    OPS.add(_function)
