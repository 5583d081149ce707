# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch_mlu's op; Lamb and Lion in plain torch.

torch_mlu's own LAMB cannot be used: it updates all tensors at once and clips by their common gradient norm, while
DeepSpeed's FusedLamb updates each tensor separately and needs its trust ratio.
"""

from __future__ import annotations

import torch

from accel_ops.optimizers.fused import ADAM, AdamStep, Lists, adam_step, runtime_adam


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments] of an MLU."""
    # The kernel (bang/fused_adam.cpp of torch_mlu 1.22 and 1.25) assumes float32 moments, but DeepSpeed keeps the
    # moments of half-precision parameters in half precision. A list may have both.
    if not lists[2] or any(moment.dtype != torch.float32 for moments in lists[2:] for moment in moments):
        adam_step(lists, adam)
        return
    flag, *constants = adam
    torch.ops.torch_mlu.fused_adam(flag, *lists, *constants)


FusedAdamBuilder = ADAM.builder(__name__, runtime_adam("torch_mlu.fused_adam", step))
