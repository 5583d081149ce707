# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch's fused operators and torch_npu's op, Lamb and Lion in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from accel_core.op_builder import Implementation
from accel_ops.device import self_checks
from accel_ops.op import LoadedOp, has_op
from accel_ops.optimizers.fused import ADAM, AdamStep, Lists, Tensors, adam_step
from accel_ops.routes import StepRoute, torch_fused_adam, wrong_step

_OP, _DEVICE = "npu.npu_apply_adam_w", "npu"


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments] of an NPU."""
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    # The op multiplies the powers by beta before the bias correction; 0 means no correction.
    power1, power2 = (beta1 ** (number - 1), beta2 ** (number - 1)) if bias_correction else (0.0, 0.0)
    plain: tuple[Tensors, ...] = ([], [], [], [])
    for tensors in zip(*lists, strict=True):
        # The op rounds betas and epsilon to the type of the parameter or gradient: in bfloat16, 0.999 is 1.
        if not _fits(tensors):
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


def _fits(tensors: Sequence[torch.Tensor]) -> bool:
    return all(tensor.dtype == torch.float32 and tensor.numel() for tensor in tensors)


def _load() -> LoadedOp:
    """Return the step with npu_apply_adam_w, if it passes its self-check."""
    name, device = f"torch.ops.{_OP}", torch.device(_DEVICE)
    modes = [(mode, corrected) for mode in (1, 0) for corrected in (1, 0)]
    checks = [partial(wrong_step, name, step, device, torch.float32, *mode) for mode in modes]
    self_checks.require(name, device, *checks)
    return LoadedOp(step, lambda: f"{name} and plain torch")


#: For strided float32, and steps without bias correction that torch's operator gets wrong.
_APPLY_ADAM = StepRoute(
    (Implementation.VENDOR_OP,), lambda: f"torch.ops.{_OP} if it works when first needed, else plain torch", _load,
    lambda: "" if has_op(_OP) else f"this runtime has no torch.ops.{_OP}", _fits,
)  # fmt: skip
#: Without torch._fused_adam_, which torch_npu runs on the CPU.
FusedAdamBuilder = ADAM.builder(__name__, torch_fused_adam(_DEVICE, then=_APPLY_ADAM, modes=(1,)))
