# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Quantizers and other ops in plain torch: truncation, bits the other way, a forgotten bias."""

from typing import Any

import torch

from broken.ops import replaces

_OTHERS = "op_quantizer_functions"
_PARTS = "op_fp_quantizer.chosen_parts_have_any_number_of_groups"
_SMALLEST = "op_fp_quantizer.smallest_groups_are_taken"


@replaces(
    "QuantizerBuilder",
    "quantize",
    "op_quantizer.overflow_stays_visible op_quantizer_extremes.sums_pass_overflows_on",
)
def QuantizerHidesOverflow(op: Any, values: torch.Tensor, *arguments: Any) -> Any:
    return op.quantize(values.nan_to_num(0.0, 1.0, -1.0), *arguments)


@replaces(
    "QuantizerBuilder",
    "swizzle_quant",
    "op_quantizer.groups_are_sent_to_their_devices",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-swizzle_quant]",
)
def GroupsStayInOrder(op: Any, values: torch.Tensor, groups: int, bits: int, kind: int, *order: int) -> Any:
    data, steps = op.quantize(values, groups, bits, kind)
    return [data.view(-1), steps]


@replaces(
    "QuantizerBuilder",
    "quantize",
    "op_quantizer.integers_are_rounded_to_nearest",
    f"{_OTHERS}.errors_are_fed_back",  # it takes its integers from `quantize`
    "op_quantizer_forms.groups_of_one_number_are_exact[Symmetric-8]",
)
def StepIsBetween(op: Any, values: torch.Tensor, groups: int, bits: int, kind: int) -> Any:
    right = op.quantize(values, groups, bits, kind)  # which refuses what does not fit
    if bits != 8 or int(kind) != int(op.Symmetric):
        return right
    rows = values.detach().reshape(groups, -1).float()
    step = (rows.abs().amax(1, keepdim=True) / 127.5).clamp(min=1e-30)
    integers = (rows / step).round().clamp(-128, 127).nan_to_num(0.0).to(torch.int8)
    return [integers.view(values.shape), step]


@replaces(
    "QuantizerBuilder",
    "ds_quantize_fp32",
    f"{_OTHERS}.numbers_are_rounded_in_place[ds_quantize-8]",
    f"{_OTHERS}.numbers_are_rounded_in_place[ds_quantize-4]",
)
def RoundingInPlaceTruncates(op: Any, values: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
    before = values.clone()
    op.ds_quantize_fp32(values, groups, bits)
    step = (2 * before.view(groups, -1).abs().amax(1, keepdim=True) + 1e-5) / (1 << bits)
    return values.copy_(((before.view(groups, -1) / step).trunc() * step).view(values.shape))


@replaces(
    "QuantizerBuilder", "ds_sr_quantize_fp16", f"{_OTHERS}.stochastic_rounding_has_no_bias[ds_sr_quantize]"
)
def StochasticIsNearest(op: Any, values: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
    result: torch.Tensor = op.ds_quantize_fp16(values, groups, bits)
    return result


@replaces(
    "QuantizerBuilder",
    "loco_swizzle_quant",
    f"{_OTHERS}.errors_are_fed_back {_OTHERS}.errors_stay_finite",
)
def ErrorsAreForgotten(op: Any, values: torch.Tensor, error: torch.Tensor, *arguments: Any) -> Any:
    return op.loco_swizzle_quant(values, error.clone(), *arguments)


@replaces(
    "QuantizerBuilder",
    "dequantize_fp32",
    "op_quantizer_forms.numbers_come_back_within_a_step",
    "op_refusals.arguments_that_do_not_fit_are_refused[QuantizerBuilder-dequantize_fp32]",
)
def RowsAreEven(op: Any, data: torch.Tensor, *arguments: Any) -> Any:
    if data.shape[-1] % 2:
        raise ValueError("an odd row")
    return op.dequantize_fp32(data, *arguments)


@replaces(
    "QuantizerBuilder",
    "loco_swizzle_quant",
    f"{_OTHERS}.float16_errors_complete_what_is_sent[4] {_OTHERS}.float16_errors_complete_what_is_sent[8]",
)
def SumsAreNotRounded(op: Any, values: torch.Tensor, error: torch.Tensor, *rest: Any) -> Any:
    wide = error.float()
    result = op.loco_swizzle_quant(values.float(), wide, *rest)
    error.copy_(wide)
    return result


# --- what the checks of ops in plain torch notice: a forgotten bias, another order, truncation, bits the other way


@replaces("EvoformerAttnBuilder", "attention_bwd", "op_evoformer.every_form_is_right")
def GradientsAreNotScaled(op: Any, *arguments: Any) -> None:
    op.attention_bwd(*arguments)
    arguments[9].mul_(arguments[1].shape[-1] ** 0.5)


@replaces("RandomLTDBuilder", "token_gather", "op_plain.tokens_are_kept_and_put_back")
def FirstTokensAreKept(op: Any, rows: torch.Tensor, index: torch.Tensor, batch_first: bool) -> Any:
    first = torch.arange(index.shape[1], dtype=index.dtype, device=index.device)
    return op.token_gather(rows, first.expand_as(index), batch_first)


@replaces("FPQuantizerBuilder", "quantize", "op_fp_quantizer.numbers_come_back")
def ExponentsAreTruncated(op: Any, out: Any, val: torch.Tensor, *rest: Any) -> Any:
    step = val.abs().amax() / 480
    return op.quantize(out, val - val.sign() * step * 16, *rest)


@replaces("FPQuantizerBuilder", "selective_dequantize", _PARTS)
def FirstPartsAreChosen(op: Any, val: torch.Tensor, data: Any, indexes: torch.Tensor, *rest: Any) -> Any:
    return op.selective_dequantize(val, data, torch.zeros_like(indexes), *rest)


# --- what the checks of results and of fp_quantizer's codes notice: shared memory, strides, halves that go up


@replaces("RandomLTDBuilder", "mask_gather_gpt", "op_results.any_argument_may_have_strides[RandomLTDBuilder]")
def MasksAreReadAsTheyLie(op: Any, mask: torch.Tensor, length: int) -> Any:
    return op.mask_gather_gpt(mask.as_strided(mask.shape, torch.empty(mask.shape).stride()), length)


@replaces(
    "FPQuantizerBuilder",
    "quantize",
    "op_fp_quantizer.codes_are_the_format_s_numbers",
    "op_fp_quantizer.shapes_and_types_are_taken",
    "op_refusals.arguments_that_do_not_fit_are_refused[FPQuantizerBuilder-quantize]",
)
def HalvesGoUp(op: Any, out: Any, val: torch.Tensor, *rest: Any) -> Any:
    largest = val.abs().amax() if val.numel() else 0.0
    return op.quantize(out, torch.where(val.abs() < largest, val * (1 + 2**-22), val), *rest)


@replaces("FPQuantizerBuilder", "quantize", f"{_SMALLEST}[8-3] {_SMALLEST}[8-2]")
def GroupsAreOfSeveral(op: Any, out: Any, val: torch.Tensor, size: int, *rest: Any) -> Any:
    if size == 1:
        raise ValueError("a group of one number")
    return op.quantize(out, val, size, *rest)
