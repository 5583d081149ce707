# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's fused operators and torch_npu's op, Lamb and Lion in plain torch."""

from __future__ import annotations

from typing import ClassVar

import torch
from typing_extensions import override

from accel_core.op_builder import Implementation
from accel_ops import fused_optimizers
from accel_ops.fused_optimizers import AdamStep, Lists, Step
from accel_ops.fused_optimizers import adam_step as adam_in_plain_torch
from accel_ops.kernel_builders import TorchFusedAdamBuilder


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments] of an NPU."""
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    # The op multiplies the powers by beta before the bias correction; 0 means no correction.
    power1, power2 = (beta1 ** (number - 1), beta2 ** (number - 1)) if bias_correction else (0.0, 0.0)
    grads, params, exp_avgs, exp_avg_sqs = ([tensor.detach() for tensor in tensors] for tensors in lists)
    if weight_decay and not adam_w_mode:
        if any(grad.dtype.itemsize < 4 for grad in grads):
            # The op takes gradients of the parameters' type, in which their sum with the decay would be rounded.
            adam_in_plain_torch(lists, adam)
            return
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    decay = weight_decay if adam_w_mode else 0.0
    for grad, param, exp_avg, exp_avg_sq in zip(grads, params, exp_avgs, exp_avg_sqs, strict=True):
        torch.ops.npu.npu_apply_adam_w.out(
            power1, power2, lr, decay, beta1, beta2, epsilon, grad, None, False, False,
            out=[param, exp_avg, exp_avg_sq],
        )  # fmt: skip


class FusedAdamBuilder(TorchFusedAdamBuilder):
    """Adam and AdamW with torch's operators for npu, by whole lists; npu_apply_adam_w, tensor by tensor, for the rest.

    The rest are the types that the operators refuse, and steps without bias correction where these are wrong.
    """

    DEVICE_TYPE = "npu"
    FUSED_OP = "npu.npu_apply_adam_w"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (
        Implementation.TORCH_FUSED,
        Implementation.VENDOR_OP,
        Implementation.PLAIN,
    )

    @override
    def fallback_step(self) -> tuple[Step, str]:
        """Return the step with npu_apply_adam_w, where this torch_npu has it."""
        return (
            (step, f"torch.ops.{self.FUSED_OP}")
            if fused_optimizers.has_op(self.FUSED_OP)
            else super().fallback_step()
        )
