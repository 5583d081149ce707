# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam on torch_sdaa's op; Lamb and Lion, for which no op is known, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

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
    """One step in place on [gradients, parameters, first moments, second moments] of an SDAA device."""
    # The op's schema is not public: this is the call that Tecorigin put into DeepSpeed. The empty list stands
    # where AMSGrad would keep its maxima.
    torch.ops.sdaa.fused_adam(
        *tensor_lists, [], beta1, beta2, epsilon, lr, weight_decay, adam_w_mode, step, bias_correction
    )


class FusedAdamBuilder(fused.FusedAdamBuilder):
    """Adam and AdamW through torch_sdaa's fused_adam."""

    FUSED_OP = "sdaa.fused_adam"
    fused = staticmethod(multi_tensor_adam)
