# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of the quantizer notice: truncation, another order, an overflow that is hidden."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import register_calls

_ROUNDED = "op_quantizer.integers_are_rounded_to_nearest"
_SENT = "op_quantizer.groups_are_sent_to_their_devices"
_VISIBLE = "op_quantizer.overflow_stays_visible"
_FED_BACK = "op_quantizer_functions.errors_are_fed_back"  # it takes its integers from `quantize`


def _truncated(op: Any, values: torch.Tensor, groups: int, bits: int, kind: int) -> Any:
    steps = op.quantize(values, groups, bits, kind)[1]
    rows, middle = values.float().view(groups, -1), steps[:, 1:] if int(kind) else 0.0
    limit = 1 << (bits - 1)
    integers = ((rows - middle) / steps[:, :1]).trunc().clamp(-limit, limit - 1).nan_to_num().to(torch.int8)
    flat = integers.view(-1)
    data = flat if bits == 8 else flat[1::2] * 16 + (flat[::2] & 15)
    return [data.view(*values.shape[:-1], -1), steps]


def _finite(op: Any, values: torch.Tensor, *arguments: Any) -> Any:
    return op.quantize(values.nan_to_num(0.0, 1.0, -1.0), *arguments)


def _in_order(op: Any, values: torch.Tensor, groups: int, bits: int, kind: int, *order: int) -> Any:
    data, steps = op.quantize(values, groups, bits, kind)
    return [data.view(-1), steps]


def _first_device(op: Any, data: torch.Tensor, steps: Any, groups: int, out: int, *rest: Any) -> Any:
    bits, kind, devices = rest
    return op.quantized_reduction(
        data[: len(data) // devices], steps[: groups // devices], out, out, bits, kind, 1
    )


def _step_between(op: Any, values: torch.Tensor, groups: int, bits: int, kind: int) -> Any:
    right = op.quantize(values, groups, bits, kind)  # which refuses what does not fit
    if bits != 8 or int(kind) != int(op.Symmetric):
        return right
    rows = values.detach().reshape(groups, -1).float()
    step = (rows.abs().amax(1, keepdim=True) / 127.5).clamp(min=1e-30)
    integers = (rows / step).round().clamp(-128, 127).nan_to_num(0.0).to(torch.int8)
    return [integers.view(values.shape), step]


register_calls(
    "QuantizerBuilder",
    "StepIsBetween",
    _ROUNDED,
    _FED_BACK,
    "op_quantizer_forms.groups_of_one_number_are_exact[Symmetric-8]",
    quantize=_step_between,
)
register_calls(
    "QuantizerBuilder",
    "QuantizerTruncates",
    _ROUNDED,
    _SENT,
    _FED_BACK,
    "op_quantizer_forms.numbers_come_back_within_a_step",
    quantize=_truncated,
)
register_calls(
    "QuantizerBuilder",
    "QuantizerHidesOverflow",
    _VISIBLE,
    "op_quantizer_extremes.sums_pass_overflows_on",
    quantize=_finite,
)
register_calls(
    "QuantizerBuilder",
    "GroupsStayInOrder",
    _SENT,
    "op_quantizer_forms.refusals_name_the_function",
    "op_quantizer_sizes.sizes_that_do_not_fit_are_refused[between_devices]",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-swizzle_quant]",
    swizzle_quant=_in_order,
)
register_calls(
    "QuantizerBuilder",
    "OneDeviceIsTheSum",
    _SENT,
    "op_quantizer_extremes.sums_of_devices_are_of_float32",
    "op_quantizer_forms.refusals_name_the_function",
    "op_quantizer_functions.shapes_are_kept",
    "op_quantizer_functions.sums_are_quantized_in_any_groups",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-quantized_reduction]",
    "op_quantizer_extremes.sums_pass_overflows_on",
    quantized_reduction=_first_device,
)


_OTHERS = "op_quantizer_functions"


def _truncated_in_place(op: Any, values: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
    before = values.clone()
    op.ds_quantize_fp32(values, groups, bits)
    step = (2 * before.view(groups, -1).abs().amax(1, keepdim=True) + 1e-5) / (1 << bits)
    return values.copy_(((before.view(groups, -1) / step).trunc() * step).view(values.shape))


def _nearest(op: Any, values: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
    result: torch.Tensor = op.ds_quantize_fp16(values, groups, bits)
    return result


def _low_half_first(op: Any, data: torch.Tensor, *arguments: Any) -> Any:
    data = data.view(torch.uint8)
    return op.dequantize_int4_to_half_experimental(data % 16 * 16 + data // 16, *arguments)


def _forgets(op: Any, values: torch.Tensor, error: torch.Tensor, *arguments: Any) -> Any:
    return op.loco_swizzle_quant(values, error.clone(), *arguments)


def _flat(op: Any, *arguments: Any) -> Any:
    return op.dequantize_fp32(*arguments).view(-1)


def _any_size(op: Any, values: torch.Tensor, *arguments: Any) -> Any:
    try:
        return op.swizzle_quant(values, *arguments)
    except ValueError:
        return op.quantize(values.view(-1, 1).repeat(1, 8), values.numel(), 8, arguments[2])


register_calls(
    "QuantizerBuilder", "RoundingInPlaceTruncates", f"{_OTHERS}.numbers_are_rounded_in_place[ds_quantize-8]",
    f"{_OTHERS}.numbers_are_rounded_in_place[ds_quantize-4]", ds_quantize_fp32=_truncated_in_place,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "StochasticIsNearest", f"{_OTHERS}.stochastic_rounding_has_no_bias[ds_sr_quantize]",
    ds_sr_quantize_fp16=_nearest,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "LowHalfComesFirst", f"{_OTHERS}.unsigned_integers_are_numbers[4]",
    dequantize_int4_to_half_experimental=_low_half_first,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "ErrorsAreForgotten", f"{_OTHERS}.errors_are_fed_back", f"{_OTHERS}.errors_stay_finite",
    "op_quantizer_extremes.each_of_many_groups_is_right",
    loco_swizzle_quant=_forgets,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "NumbersComeBackFlat", f"{_OTHERS}.shapes_are_kept",
    f"{_OTHERS}.rows_of_any_length_are_dequantized",
    "op_quantizer_forms.groups_of_one_number_are_exact",
    "op_quantizer_forms.numbers_come_back_within_a_step", dequantize_fp32=_flat,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "AnySizeIsQuantized", "op_quantizer_sizes.sizes_that_do_not_fit_are_refused[between_devices]",
    "op_quantizer_forms.refusals_name_the_function",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-swizzle_quant]",
    swizzle_quant=_any_size,
)  # fmt: skip


def _keeps_nan(op: Any, values: torch.Tensor, error: torch.Tensor, *arguments: Any) -> Any:
    result = op.loco_swizzle_quant(values, error, *arguments)
    if values.isnan().any():
        error.view(values.shape)[values.isnan().any(-1)] = torch.nan
    return result


def _even(op: Any, data: torch.Tensor, *arguments: Any) -> Any:
    if data.shape[-1] % 2:
        raise ValueError("an odd row")
    return op.dequantize_fp32(data, *arguments)


def _in_float32(op: Any, values: torch.Tensor, error: torch.Tensor, *rest: Any) -> Any:
    wide = error.float()
    result = op.loco_swizzle_quant(values.float(), wide, *rest)
    error.copy_(wide)
    return result


register_calls(
    "QuantizerBuilder", "SumsAreNotRounded", f"{_OTHERS}.float16_errors_complete_what_is_sent[4]",
    f"{_OTHERS}.float16_errors_complete_what_is_sent[8]", loco_swizzle_quant=_in_float32,
)  # fmt: skip
register_calls(
    "QuantizerBuilder", "ErrorsAreNaN", f"{_OTHERS}.errors_stay_finite", loco_swizzle_quant=_keeps_nan
)
register_calls(
    "QuantizerBuilder",
    "RowsAreEven",
    f"{_OTHERS}.rows_of_any_length_are_dequantized",
    "op_quantizer_forms.numbers_come_back_within_a_step",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-dequantize_fp32]",
    dequantize_fp32=_even,
)


def _whole_groups(op: Any, values: torch.Tensor, groups: int, *rest: Any) -> Any:
    if groups and values.dim() == 1:
        values = values[: values.numel() // groups * groups]
    return op.quantize(values, groups, *rest)


register_calls(
    "QuantizerBuilder", "FlatTensorsAreCut", "op_quantizer_sizes.sizes_that_do_not_fit_are_refused[of_one_tensor]",
    quantize=_whole_groups,
)  # fmt: skip
