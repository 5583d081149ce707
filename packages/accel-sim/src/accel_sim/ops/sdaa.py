# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.sdaa. torch_sdaa is closed: the schemas are inferred from public calls, which the surface names."""

from __future__ import annotations

import torch

from accel_sim import errors
from accel_sim.ops import Ops, same_device, steps

Tensor = torch.Tensor
Tensors = list[Tensor]


def fused_adam(
    grads: Tensors, params: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, max_exp_avg_sqs: Tensors,
    beta1: float, beta2: float, eps: float, lr: float, weight_decay: float, adam_w_mode: int, step: int,
    bias_correction: int,
) -> None:  # fmt: skip
    """Adam or AdamW. What the fifth list is for is not known; DeepSpeed leaves it empty."""
    if max_exp_avg_sqs:
        errors.raise_not_simulated("torch.ops.sdaa.fused_adam with a fifth list of tensors")
    same_device("fused_adam", *grads, *params, *exp_avgs, *exp_avg_sqs)
    numbers = lr, beta1, beta2, eps, weight_decay
    steps.adam_lists(
        [grads, params, exp_avgs, exp_avg_sqs], numbers, step, adam_w_mode == 1, bool(bias_correction)
    )


def swiglu(self: Tensor, seq_lens: int, num_head: int, hidden_size: int) -> Tensor:
    """silu(self[..., :H]) * self[..., H:]: contiguous (1, S, B, 2 H) to (S, B, H)."""
    if not self.is_contiguous() or tuple(self.shape) != (1, seq_lens, num_head, 2 * hidden_size):
        raise RuntimeError(
            f"swiglu needs a contiguous tensor of (1, {seq_lens}, {num_head}, {2 * hidden_size}), "
            f"found {tuple(self.shape)}"
        )
    return steps.swiglu(self[0], -1)


OPS = Ops("sdaa", "sdaa")
for _function in (fused_adam, swiglu):
    OPS.add(_function)
