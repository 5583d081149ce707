# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.deepspeed of torch_supa_ext, which is closed: the schema is inferred from DeepSpeed's call."""

from __future__ import annotations

import torch

from accel_sim.ops import Ops, same_device, steps

Tensors = list[torch.Tensor]


def multi_tensor_adam(
    chunk_size: int, noop_flag: torch.Tensor, grads: Tensors, params: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    lr: float, beta1: float, beta2: float, epsilon: float, step: int, mode: int, bias_correction: int,
    weight_decay: float,
) -> None:  # fmt: skip
    """mode: 0 adds the decay to the gradient, 1 is AdamW."""
    same_device("multi_tensor_adam", noop_flag, *grads, *params, *exp_avgs, *exp_avg_sqs)
    numbers = lr, beta1, beta2, epsilon, weight_decay
    steps.adam_lists([grads, params, exp_avgs, exp_avg_sqs], numbers, step, mode == 1, bool(bias_correction))


OPS = Ops("supa", "deepspeed")
OPS.add(multi_tensor_adam)
