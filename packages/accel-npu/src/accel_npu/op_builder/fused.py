# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's fused operators and torch_npu's op, Lamb and Lion in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from typing_extensions import override

from accel_core.op_builder import Implementation
from accel_ops import self_checks
from accel_ops.fused_optimizers import AdamStep, Lists, Step, Tensors, adam_step, has_op
from accel_ops.kernel_builders import TorchFusedAdamBuilder, wrong_step


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments] of an NPU."""
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    # The op multiplies the powers by beta before the bias correction; 0 means no correction.
    power1, power2 = (beta1 ** (number - 1), beta2 ** (number - 1)) if bias_correction else (0.0, 0.0)
    plain: tuple[Tensors, ...] = ([], [], [], [])
    for tensors in zip(*lists, strict=True):
        # The op rounds betas and epsilon to the type of the parameter or gradient: in bfloat16, 0.999 is 1.
        if not _is_wide(tensors):
            for column, tensor in zip(plain, tensors, strict=True):
                column.append(tensor)
            continue
        grad, param, exp_avg, exp_avg_sq = (tensor.detach() for tensor in tensors)
        if weight_decay and not adam_w_mode:
            grad = grad.add(param, alpha=weight_decay)
        torch.ops.npu.npu_apply_adam_w.out(
            power1, power2, lr, weight_decay if adam_w_mode else 0.0, beta1, beta2, epsilon, grad, None, False, False,
            out=[param, exp_avg, exp_avg_sq],
        )  # fmt: skip
    if plain[0]:
        adam_step(plain, adam)


def _is_wide(tensors: Sequence[torch.Tensor]) -> bool:
    return all(tensor.dtype == torch.float32 for tensor in tensors)


class FusedAdamBuilder(TorchFusedAdamBuilder):
    """Adam and AdamW with torch's operators for npu, by whole lists; npu_apply_adam_w for other tensors of float32.

    These are strided ones, and all in steps without bias correction where torch's operators are wrong.
    """

    DEVICE_TYPE = "npu"
    FUSED_OP = "npu.npu_apply_adam_w"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (
        Implementation.TORCH_FUSED,
        Implementation.VENDOR_OP,
        Implementation.PLAIN,
    )

    @override
    def expected(self) -> str:
        if not has_op(self.FUSED_OP):
            return ""
        return f"torch.ops.{self.FUSED_OP} if it works when first needed, else plain torch"

    @override
    def wanted(self, tensors: Sequence[torch.Tensor]) -> bool:
        return _is_wide(tensors)

    @override
    def busy(self) -> bool:
        runtime = torch.get_device_module(self.DEVICE_TYPE)
        capturing = getattr(runtime, "is_current_stream_capturing", None)  # older releases have no graphs
        return bool(capturing()) if capturing else False

    @override
    def fallback_step(self) -> tuple[Step, str]:
        """Return the step with npu_apply_adam_w, if this torch_npu has it and it passes its self-check."""
        plain, what = super().fallback_step()
        name, device = f"torch.ops.{self.FUSED_OP}", torch.device(self.DEVICE_TYPE)
        if not has_op(self.FUSED_OP):
            return plain, what
        modes = [(mode, corrected) for mode in (1, 0) for corrected in (1, 0)]
        checks = [partial(wrong_step, name, step, device, torch.float32, *mode) for mode in modes]
        reason = self_checks.unsupported_reason(name, device, *checks)
        return (plain, f"{what} ({reason})") if reason else (step, f"{name} and {what}")
