# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Calls of the quantizer's functions with error feedback, and of those for unsigned integers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from accel_testkit.suite.refused_calls import FEWER, FLOAT, MORE, TYPE, Call

_QUANTIZER = "QuantizerBuilder"
_BITS = {"num_bits": {"5": 5, "16": 16}}


def _rows(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).half()


def _integers(*shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()) % 100 - 50).to(torch.int8).view(shape)


def _swizzle() -> dict[str, Any]:
    given = {"input_vals": _rows(4, 16), "error_feedback": torch.zeros(64), "err_beta": 0.5, "groups": 4}
    return given | {"num_bits": 8, "quant_type": 0, "pipeline_size": 1, "nodes": 2, "devices_per_node": 2}


def _reduction() -> dict[str, Any]:
    given = {"input_vals": _integers(4, 16), "input_scales": torch.ones(4, 1)}
    feedback = {"error_feedback": torch.zeros(32), "err_beta": 0.5}
    return given | feedback | {
        "in_groups": 4, "out_groups": 2, "num_bits": 8, "quant_type": 0, "devices_per_node": 2
    }  # fmt: skip


def _unsigned(bits: int) -> dict[str, Any]:
    buffers = {"scale_buffer": torch.ones(8).half(), "min_val_buffer": torch.zeros(8).half()}
    return {"data_in": _integers(8 * bits), **buffers, "num_group": 8, "group_size": 8}


def _of_any(*names: str) -> set[tuple[str, str]]:
    return {(name, change) for name in names for change in (TYPE, FLOAT, MORE)}


CALLS = (
    Call(
        _QUANTIZER,
        "loco_swizzle_quant",
        _swizzle,
        numbers={"groups": {"3": 3, "0": 0}, "nodes": {"3": 3, "0": 0}, **_BITS},
        taken=frozenset(_of_any("input_vals", "error_feedback")),
        sizes=True,
    ),
    Call(
        _QUANTIZER,
        "loco_quantized_reduction",
        _reduction,
        numbers={"in_groups": {"3": 3, "0": 0}, "devices_per_node": {"3": 3, "0": 0}, **_BITS},
        # A row fewer is another number of elements: it is the errors that then do not fit.
        taken=frozenset({*_of_any("input_vals", "input_scales", "error_feedback"), ("input_vals", FEWER)}),
        sizes=True,
    ),
    *(
        Call(
            _QUANTIZER,
            f"dequantize_int{bits}_to_half_experimental",
            partial(_unsigned, bits),
            numbers={"num_group": {"4": 4}, "group_size": {"7": 7, "0": 0}},
            taken=frozenset({("data_in", MORE), *_of_any("scale_buffer", "min_val_buffer")}),
            named=frozenset({"data_in", "scale_buffer", "min_val_buffer"}),
            said=r"dequantize_int\S*_to_half_experimental",
        )
        for bits in (8, 4)
    ),
)
