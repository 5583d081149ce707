# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of results and of fp_quantizer's codes notice: shared memory, strides, halves that go up."""

from __future__ import annotations

from typing import Any

import torch

from broken.by_rule_ops import register_calls

_STRIDES = "op_results.any_argument_may_have_strides"
_NEW = "op_results.inputs_stay_and_results_are_new"
_CODES = "op_fp_quantizer.codes_are_the_format_s_numbers"
_SMALLEST = "op_fp_quantizer.smallest_groups_are_taken"

_made: dict[Any, torch.Tensor] = {}


def _into_the_same(op: Any, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    found = op.nhwc_bias_add(x, bias)
    return _made.setdefault((found.shape, found.dtype, found.stride()), found).copy_(found)


def _as_it_lies(op: Any, mask: torch.Tensor, length: int) -> Any:
    return op.mask_gather_gpt(mask.as_strided(mask.shape, torch.empty(mask.shape).stride()), length)


def _halves_go_up(op: Any, out: Any, val: torch.Tensor, *rest: Any) -> Any:
    largest = val.abs().amax() if val.numel() else 0.0
    return op.quantize(out, torch.where(val.abs() < largest, val * (1 + 2**-22), val), *rest)


def _of_several(op: Any, out: Any, val: torch.Tensor, size: int, *rest: Any) -> Any:
    if size == 1:
        raise ValueError("a group of one number")
    return op.quantize(out, val, size, *rest)


register_calls(
    "SpatialInferenceBuilder", "SumsShareMemory", f"{_NEW}[SpatialInferenceBuilder]",
    nhwc_bias_add=_into_the_same,
)  # fmt: skip
register_calls(
    "RandomLTDBuilder", "MasksAreReadAsTheyLie", f"{_STRIDES}[RandomLTDBuilder]", mask_gather_gpt=_as_it_lies
)
register_calls(
    "FPQuantizerBuilder",
    "HalvesGoUp",
    _CODES,
    "op_fp_quantizer.shapes_and_types_are_taken",
    "op_refusals.arguments_that_do_not_fit_are_refused[FPQuantizerBuilder-quantize]",
    quantize=_halves_go_up,
)
register_calls(
    "FPQuantizerBuilder", "GroupsAreOfSeveral", f"{_SMALLEST}[8-3]", f"{_SMALLEST}[8-2]", quantize=_of_several
)
