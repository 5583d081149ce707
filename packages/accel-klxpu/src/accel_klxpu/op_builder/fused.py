# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch_xmlir's op; Lamb and Lion, for which no op is known, in plain torch."""

from __future__ import annotations

import torch

from accel_ops.optimizers.fused import ADAM, AdamStep, Lists, adam_step
from accel_ops.routes import tried_adam


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments] of a Kunlunxin XPU."""
    # torch_xmlir is closed: this is the call of Kunlunxin's code in DeepSpeed. For AdamW, that has an op for each
    # tensor, which takes powers of the betas in float32, always corrects, and starts a kernel for each tensor.
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    if not lists[0] or any(tensor.dtype != torch.float32 for tensors in lists for tensor in tensors):
        adam_step(lists, adam)
        return
    sizes = [param.numel() for param in lists[1]]
    torch.ops.custom_ops.multi_tensor_adam(
        *lists, sizes, lr, beta1, beta2, epsilon, weight_decay, number, adam_w_mode, bias_correction
    )


FusedAdamBuilder = ADAM.builder(__name__, tried_adam("custom_ops.multi_tensor_adam", step, "cuda"))
