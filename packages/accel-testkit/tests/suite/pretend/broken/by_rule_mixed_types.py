# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What checks of mixed types and of overflows notice: rounded states, forgotten decay, norms and sums that hide."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import register_calls

_MIXED = "op_mixed_types.each_type_keeps_its_precision"


def _rounded_states(op: Any, chunk: int, flag: Any, lists: Any, *arguments: Any) -> None:
    op.multi_tensor_adam(chunk, flag, lists, *arguments)
    first = lists[1][0].dtype
    for states in lists[2:]:
        for state in states:
            state.copy_(state.to(first))


def _decays_float32(op: Any, number: int, *arguments: Any) -> None:
    *numbers, decay, param, grad, momentum = arguments
    op.lion_update(number, *numbers, decay if param.dtype == torch.float32 else 0.0, param, grad, momentum)


register_calls(
    "FusedAdamBuilder", "StatesAreRoundedLikeParameters",
    f"{_MIXED}[float32 states-FusedAdamBuilder-bf16]", f"{_MIXED}[float32 states-FusedAdamBuilder-fp16]",
    f"{_MIXED}[states of its type-FusedAdamBuilder-bf16]", f"{_MIXED}[states of its type-FusedAdamBuilder-fp16]",
    multi_tensor_adam=_rounded_states,
)  # fmt: skip
register_calls(
    "CPULionBuilder", "HalfTypesDoNotDecay", "op_precision.parameters_may_require_gradients[CPULionBuilder]",
    "op_steps.half_precision_steps_are_right[CPULionBuilder-fp16-float32]",
    "op_steps.half_precision_steps_are_right[CPULionBuilder-fp16-same]",
    f"{_MIXED}[float32 states-CPULionBuilder-bf16]", f"{_MIXED}[float32 states-CPULionBuilder-fp16]",
    f"{_MIXED}[states of its type-CPULionBuilder-bf16]", f"{_MIXED}[states of its type-CPULionBuilder-fp16]",
    lion_update=_decays_float32,
)  # fmt: skip


def _norm_of_halves(op: Any, param: torch.Tensor, *arguments: Any) -> Any:
    if param.dtype == torch.float16 and (param.detach() ** 2).sum().isinf():
        return op.lamb(param, *arguments[:7], 1e4, 1e4, *arguments[9:])
    return op.lamb(param, *arguments)


register_calls(
    "FusedLambBuilder", "LambSquaresInHalf", "op_mixed_types.norms_of_half_types_do_not_overflow",
    lamb=_norm_of_halves,
)  # fmt: skip


def _residual_last(
    op: Any, normed: torch.Tensor, out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *rest: Any
) -> None:
    aliased = out.data_ptr() == y.data_ptr()
    op.rms_pre_norm(normed, out, x, y, *rest)
    if aliased:
        op.rms_norm(normed, out + x, *rest)


def _without_overflows(op: Any, data: torch.Tensor, steps: torch.Tensor, *rest: Any) -> Any:
    return op.quantized_reduction(data, steps.nan_to_num(1.0), *rest)


register_calls(
    "InferenceCoreBuilder", "NormReadsTheNewResidual", "op_norm_extremes.residuals_may_be_written_over",
    "op_inference.functions_are_right",
    rms_pre_norm=_residual_last,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "SumsHideOverflows", "op_quantizer_extremes.sums_pass_overflows_on",
    quantized_reduction=_without_overflows,
)  # fmt: skip


def _through_half(op: Any, values: torch.Tensor, *rest: Any) -> Any:
    return op.quantize(values.half() if values.dtype == torch.bfloat16 else values, *rest)


def _tiny_is_zero(op: Any, data: torch.Tensor, values: torch.Tensor, size: int, *rest: Any) -> Any:
    if size < 1 or values.numel() % size or not values.is_floating_point():
        return op.quantize(data, values, size, *rest)
    rows = values.detach().reshape(-1, size)
    tiny = rows.abs().amax(1, keepdim=True) < 1e-5
    return op.quantize(data, rows.masked_fill(tiny, 0).view(values.shape), size, *rest)


def _whole_groups(op: Any, values: torch.Tensor, groups: int, *rest: Any) -> Any:
    if groups and values.dim() == 1:
        values = values[: values.numel() // groups * groups]
    return op.quantize(values, groups, *rest)


register_calls(
    "QuantizerBuilder", "BrainFloatsAreReadAsHalf", "op_quantizer_extremes.numbers_of_bfloat16_keep_their_range",
    quantize=_through_half,
)  # fmt: skip
register_calls(
    "FPQuantizerBuilder", "TinyGroupsAreZero", "op_fp_quantizer.tiny_groups_keep_their_numbers",
    quantize=_tiny_is_zero,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "FlatTensorsAreCut", "op_quantizer_sizes.sizes_that_do_not_fit_are_refused[of_one_tensor]",
    quantize=_whole_groups,
)  # fmt: skip
