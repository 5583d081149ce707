# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.custom_ops of torch_xmlir, which is closed: the schema is inferred from DeepSpeed's call."""

from __future__ import annotations

import torch

from accel_sim.ops import Ops, same_device, steps

Tensors = list[torch.Tensor]


def multi_tensor_adam(
    grads: Tensors, params: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, sizes: list[int], lr: float, beta1: float,
    beta2: float, epsilon: float, weight_decay: float, step: int, adam_w_mode: int, bias_correction: int,
) -> None:  # fmt: skip
    """adam_w_mode: 0 adds the decay to the gradient, 1 is AdamW."""
    same_device("multi_tensor_adam", *grads, *params, *exp_avgs, *exp_avg_sqs)
    numbers = lr, beta1, beta2, epsilon, weight_decay
    steps.adam_lists(
        [grads, params, exp_avgs, exp_avg_sqs], numbers, step, adam_w_mode == 1, bool(bias_correction)
    )


OPS = Ops("klxpu", "custom_ops")
OPS.add(multi_tensor_adam)
