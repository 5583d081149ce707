# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.hpu: optimizers, casts to 8 bits, norm and rotary embedding.

Schemas: github.com/HabanaAI/gaudi-pytorch-bridge v1.19.0; they are others in lazy mode. What they compute: its tests.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from accel_sim import errors
from accel_sim.ops import Ops, same_device, steps
from accel_sim.ops.steps import copy_back, wide

Tensor = torch.Tensor
Tensors = list[Tensor]
_LAZY = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


def optimizer_adamw_lazy(
    gradient_vec: Tensors, weight_vec: Tensors, exp_avg_vec: Tensors, exp_avg_sq_vec: Tensors, neg_step_t: Tensor,
    beta1: float, beta2: float, epsilon: float, weight_decay: float, exp_avg_scales: Tensors | None = None,
    exp_avg_sq_scales: Tensors | None = None,
) -> None:  # fmt: skip
    """AdamW. neg_step_t: minus the step size, with both corrections; weight_decay: the factor of the weights."""
    _adamw(gradient_vec, weight_vec, exp_avg_vec, exp_avg_sq_vec, neg_step_t, (beta1, beta2, epsilon), weight_decay,
           exp_avg_scales)  # fmt: skip


def optimizer_adamw_eager(
    gradient_vec: Tensors, weight_vec: Tensors, exp_avg_vec: Tensors, exp_avg_sq_vec: Tensors, neg_step_t: Tensor,
    beta1: float, beta2: float, epsilon: float, weight_decay: Tensor, has_weight_decay: bool,
    exp_avg_scales: Tensors | None = None, exp_avg_sq_scales: Tensors | None = None,
) -> None:  # fmt: skip
    """AdamW with the factor of the weights as a tensor."""
    kept: Any = weight_decay if has_weight_decay else 1.0
    _adamw(gradient_vec, weight_vec, exp_avg_vec, exp_avg_sq_vec, neg_step_t, (beta1, beta2, epsilon), kept,
           exp_avg_scales)  # fmt: skip


def _adamw(
    grads: Tensors, weights: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, neg_step: Tensor,
    constants: tuple[float, float, float], kept: Any, scales: Tensors | None,
) -> None:  # fmt: skip
    if scales is not None:
        errors.raise_not_simulated("torch.ops.hpu.optimizer_adamw with moments in 8 bits")
    beta1, beta2, epsilon = constants
    same_device("optimizer_adamw", neg_step, *grads, *weights, *exp_avgs, *exp_avg_sqs)
    for each in zip(weights, grads, exp_avgs, exp_avg_sqs, strict=True):
        p, g, m, v = wide(each)
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        p.mul_(kept).add_(neg_step * m / v.sqrt().add_(epsilon))
        copy_back([each[0], *each[2:]], [p, m, v])


def optimizer_ema(model_inputs: Tensors, updated_ema: Tensors, decay: Tensor) -> None:
    """Moving averages of the floating tensors."""
    for now, average in zip(model_inputs, updated_ema, strict=True):
        if average.is_floating_point():
            average.copy_(average.float() * decay + now.float() * (1 - decay))


def _scaled(input: Tensor, scale: Any, scale_shape: list[int] | None) -> Tensor:
    if scale is None:
        return input.float()
    factor = torch.tensor(scale).to(input.device) if not isinstance(scale, Tensor) else scale
    return input.float() * (factor.reshape(scale_shape) if scale_shape else factor).float()


def cast_to_fp8_v2(
    input: Tensor, scale: Any = None, stochastic_rounding: bool = False, is_amax: bool = False,
    dtype: torch.dtype | None = None, scale_shape: list[int] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """input * scale in 8 bits, values beyond the range at its ends; the largest magnitude of the input if asked."""
    if stochastic_rounding:
        errors.raise_not_simulated("torch.ops.hpu.cast_to_fp8_v2 with stochastic rounding")
    kind = torch.float8_e5m2 if dtype is None else dtype
    limit = torch.finfo(kind).max
    cast = _scaled(input, scale, scale_shape).clamp(-limit, limit).to(kind)
    return cast, input.float().abs().max() if is_amax else input.new_empty(0, dtype=torch.float32)


def cast_from_fp8(
    input: Tensor, scale: Any, out_dtype: torch.dtype, scale_shape: list[int] | None = None
) -> Tensor:
    """input * scale in that type."""
    return _scaled(input, scale, scale_shape).to(out_dtype)


def rms_norm(data_in: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Over the last dimension; also the reciprocal root mean squares, in float32."""
    return steps.rms_norm(data_in, gamma, epsilon, (-1,))


def rotary_pos_embedding(
    input: Tensor, sin: Tensor, cos: Tensor, position_ids: Tensor | None, offset: int, mode: int
) -> Tensor:
    """input * cos + rotated(input) * sin. mode: 0 turns halves, 1 pairs."""
    if position_ids is not None or offset:
        errors.raise_not_simulated("torch.ops.hpu.rotary_pos_embedding with position ids or an offset")
    x = input.float()
    return (x * cos.float() + steps.rotated(x, halves=mode == 0) * sin.float()).to(input.dtype)


OPS = Ops("hpu", "hpu")
if _LAZY:
    OPS.add(optimizer_adamw_lazy, "optimizer_adamw", having="float weight_decay")
else:
    OPS.add(optimizer_adamw_eager, "optimizer_adamw", having="Tensor weight_decay")
    OPS.add(optimizer_ema)
for _function in (rms_norm, rotary_pos_embedding):
    OPS.add(_function)
for _overload in ("", ".scalar", ".scalar_list"):
    OPS.add(cast_to_fp8_v2, f"cast_to_fp8_v2{_overload}")
    OPS.add(cast_from_fp8, f"cast_from_fp8{_overload}")
