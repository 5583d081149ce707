# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam on torch_mlu's op; Lamb and Lion in plain torch.

torch_mlu has a LAMB of its own. It takes all tensors and their common gradient norm at once, and clips by it;
DeepSpeed's FusedLamb steps tensor by tensor and wants each one's trust ratio back.
"""

from __future__ import annotations

import torch

from accel_core.op_builder import fused
from accel_core.op_builder.fused import FusedLambBuilder, FusedLionBuilder
from accel_core.op_builder.steps import adam as plain
from accel_core.op_builder.steps.adam import AdamStep, Lists, as_multi_tensor_adam

__all__ = ["FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder"]


def step(lists: Lists, adam: AdamStep) -> None:
    """One step in place on [gradients, parameters, first moments, second moments] of an MLU."""
    # The kernel (bang/fused_adam.cpp of torch_mlu 1.22 and 1.25) takes the moments for float32 whatever they
    # are, while DeepSpeed keeps those of half-precision parameters in their own type.
    if lists[2][0].dtype != torch.float32:
        plain.step(lists, adam)
        return
    flag, *constants = adam
    torch.ops.torch_mlu.fused_adam(flag, *lists, *constants)


class FusedAdamBuilder(fused.FusedAdamBuilder):
    """Adam and AdamW through torch_mlu's fused_adam."""

    FUSED_OP = "torch_mlu.fused_adam"
    fused = staticmethod(as_multi_tensor_adam(step))
