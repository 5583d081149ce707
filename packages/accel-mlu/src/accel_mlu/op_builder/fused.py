# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam on torch_mlu's op; Lamb and Lion in plain torch.

torch_mlu has a LAMB of its own. It takes all tensors and their common gradient norm at once, and clips by it;
DeepSpeed's FusedLamb steps tensor by tensor and wants each one's trust ratio back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from accel_core.foreach import adam
from accel_core.op_builder import fused
from accel_core.op_builder.fused import FusedLambBuilder, FusedLionBuilder

__all__ = ["FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder"]


def multi_tensor_adam(
    chunk_size: int,
    noop_flag_buffer: torch.Tensor,
    tensor_lists: Sequence[list[torch.Tensor]],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    adam_w_mode: int,
    bias_correction: int,
    weight_decay: float,
    *args: Any,
) -> None:
    """One step in place on [gradients, parameters, first moments, second moments] of an MLU."""
    # The kernel (bang/fused_adam.cpp of torch_mlu 1.22 and 1.25) takes the moments for float32 whatever they
    # are, while DeepSpeed keeps those of half-precision parameters in their own type.
    if tensor_lists[2][0].dtype != torch.float32:
        return adam.multi_tensor_adam(
            chunk_size, noop_flag_buffer, tensor_lists, lr, beta1, beta2, epsilon, step, adam_w_mode,
            bias_correction, weight_decay,
        )  # fmt: skip
    torch.ops.torch_mlu.fused_adam(
        noop_flag_buffer, *tensor_lists, lr, beta1, beta2, epsilon, step, adam_w_mode, bias_correction,
        weight_decay,
    )  # fmt: skip
    return None


class FusedAdamBuilder(fused.FusedAdamBuilder):
    """Adam and AdamW through torch_mlu's fused_adam."""

    FUSED_OP = "torch_mlu.fused_adam"
    fused = staticmethod(multi_tensor_adam)
