# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch_sdaa's op; Lamb and Lion, for which no op is known, in plain torch."""

from __future__ import annotations

import torch

from accel_ops.optimizers.fused import ADAM, AdamStep, Lists, runtime_adam


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments] of an SDAA device."""
    # The op's schema is not public: this is the call in Tecorigin's contribution to DeepSpeed. The empty list is for
    # the maxima of AMSGrad.
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    torch.ops.sdaa.fused_adam(
        *lists, [], beta1, beta2, epsilon, lr, weight_decay, adam_w_mode, number, bias_correction
    )


FusedAdamBuilder = ADAM.builder(__name__, runtime_adam("sdaa.fused_adam", step))
