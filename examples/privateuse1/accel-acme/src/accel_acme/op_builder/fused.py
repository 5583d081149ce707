# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The accel-acme authors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam on the runtime's own op, where it takes the tensors; the others in plain torch."""

from __future__ import annotations

import torch
from accel_ops.optimizers.fused import ADAM, AdamStep, Lists, adam_step, runtime_adam


def step(lists: Lists, adam: AdamStep) -> None:
    """One step in place: [gradients, parameters, first moments, second moments]."""
    tensors = [tensor for group in lists for tensor in group]
    alike = all(t.dtype == torch.float32 and t.is_contiguous() for t in tensors)
    if not alike or (adam.weight_decay and not adam.adam_w_mode):
        adam_step(lists, adam)
        return
    correction1 = 1 - adam.beta1**adam.step if adam.bias_correction else 1.0
    correction2 = 1 - adam.beta2**adam.step if adam.bias_correction else 1.0
    for grad, param, exp_avg, exp_avg_sq in zip(*lists, strict=True):
        torch.ops.acme.adamw_(
            param.detach(),
            grad,
            exp_avg,
            exp_avg_sq,
            adam.lr,
            adam.beta1,
            adam.beta2,
            adam.epsilon,
            adam.weight_decay,
            correction1,
            correction2,
        )


#: Plain torch serves for types that the op does not take.
FusedAdamBuilder = ADAM.builder(__name__, runtime_adam("acme.adamw_", step))
