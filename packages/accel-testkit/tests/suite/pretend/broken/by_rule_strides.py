# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of orders in memory and of sizes of numbers notice: data_ptr() of anything, a floor, a full table."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import register_calls

_FORM = "op_steps.every_form_is_stepped"


def _with_a_floor(op: Any, chunk: int, flag: Any, lists: Any, *rest: Any) -> None:
    op.multi_tensor_adam(chunk, flag, lists, *rest)
    for second in lists[3]:
        second.clamp_(min=1e-12)


def _dense(tensor: torch.Tensor) -> bool:
    """Whether there are no gaps, in whatever order."""
    last = tensor.t() if tensor.dim() == 2 else tensor
    ordered = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last.is_contiguous() or tensor.is_contiguous() or ordered


def _in_memory_order(op: Any, chunk: int, flag: Any, lists: Any, *rest: Any) -> None:
    rows = [
        [tensor.as_strided((tensor.numel(),), (1,)) for tensor in row] if all(map(_dense, row)) else row
        for row in zip(*lists, strict=True)
    ]
    op.multi_tensor_adam(chunk, flag, [list(column) for column in zip(*rows, strict=True)], *rest)


register_calls(
    "FusedAdamBuilder", "SecondMomentsHaveAFloor",
    f"{_FORM}[tiny-FusedAdamBuilder]",
    "op_steps.nothing_comes_of_nothing[fp32-FusedAdamBuilder]",
    "op_steps.nothing_comes_of_nothing[bf16-FusedAdamBuilder]",
    multi_tensor_adam=_with_a_floor,
)  # fmt: skip
register_calls(
    "FusedAdamBuilder", "ElementsMeetInMemory",
    f"{_FORM}[transposed-FusedAdamBuilder]",
    f"{_FORM}[channels last-FusedAdamBuilder]",
    multi_tensor_adam=_in_memory_order,
)  # fmt: skip


def _flat(op: Any, values: torch.Tensor, *rest: Any) -> Any:
    if _dense(values):
        values = values.as_strided((values.numel(),), (1,)).view(values.shape)
    return op.quantize(values, *rest)


register_calls(
    "QuantizerBuilder", "NumbersAreReadAsTheyLie",
    "op_results.any_argument_may_have_strides[QuantizerBuilder]",
    quantize=_flat,
)  # fmt: skip


def _first_layers(op: Any, *arguments: Any) -> Any:
    return op.softmax_context_fp32(*arguments[:12], arguments[12] % 32, *arguments[13:])


_ATTENTION = "op_attention"
register_calls(
    "InferenceBuilder", "LayersAreCountedAnew", f"{_ATTENTION}.every_layer_has_a_cache",
    softmax_context_fp32=_first_layers,
)  # fmt: skip


def _in_one_pass(
    op: Any, out: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float
) -> None:
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide.square().mean(-1, keepdim=True) - mean.square()).clamp_(min=0)
    out.copy_((wide - mean) * torch.rsqrt(variance + eps) * gamma.float() + beta.float())


register_calls(
    "InferenceCoreBuilder", "VarianceInOnePass", "op_norm_extremes.large_means_are_taken_off",
    layer_norm=_in_one_pass,
)  # fmt: skip


def _turned(data: torch.Tensor, size: int) -> torch.Tensor:
    rows = data.view(-1, size * 6 // 8 + 4)
    rows[:, :-4] = rows[:, :-4].flip(1)
    return data


def _last_first(
    op: Any, out: torch.Tensor, val: torch.Tensor, size: int, random: int, bits: int, *rest: Any
) -> Any:
    result = op.quantize(out, val, size, random, bits, *rest)
    return _turned(result, size) if bits == 6 else result


def _from_the_last(op: Any, val: Any, data: torch.Tensor, size: int, mantissa: int, exponent: int) -> None:
    data = _turned(data.clone(), size) if mantissa + exponent == 5 else data
    op.dequantize(val, data, size, mantissa, exponent)


def _parts_from_the_last(
    op: Any, val: Any, data: torch.Tensor, indexes: Any, size: int, mantissa: int, exponent: int
) -> None:
    data = _turned(data.clone(), size) if mantissa + exponent == 5 else data
    op.selective_dequantize(val, data, indexes, size, mantissa, exponent)


register_calls(
    "FPQuantizerBuilder", "CodesBeginAtTheEnd", "op_fp_quantizer.codes_are_the_format_s_numbers[6-2]",
    quantize=_last_first, dequantize=_from_the_last, selective_dequantize=_parts_from_the_last,
)  # fmt: skip


def _in_fewer_groups(
    op: Any, data: Any, steps: Any, groups: int, out: int, bits: int, kind: Any, devices: int
) -> Any:
    op.quantized_reduction(data, steps, groups, out, bits, kind, devices)
    return op.quantized_reduction(data, steps, groups, groups // devices, bits, kind, devices)


register_calls(
    "QuantizerBuilder", "GroupsOfSumsAreThoseOfParts", "op_quantizer_functions.sums_are_quantized_in_any_groups",
    quantized_reduction=_in_fewer_groups,
)  # fmt: skip
