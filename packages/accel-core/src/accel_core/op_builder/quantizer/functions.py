# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's quantizer, with their names and arguments, in plain torch.

Differences from DeepSpeed's CUDA kernels: inputs of bfloat16 and float32 are read as such; sums are float32; no
limit of a group's size or its multiple of 8; sizes that do not fit are errors.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch

from accel_core.op_builder.functions import OpFunctions
from accel_core.op_builder.quantizer import checks
from accel_core.op_builder.quantizer import groups as grouped
from accel_core.op_builder.quantizer.fake import fake_quantized

Pair = list[torch.Tensor]


class QuantizationType(IntEnum):
    """Symmetric: parameters (groups, 1), the step. Asymmetric: (groups, 2), the step and the middle of the range."""

    Symmetric = 0
    Asymmetric = 1


class QuantizerFunctions(OpFunctions):
    """The loaded quantizer. `groups` are of equal size, in memory order; `num_bits` is 8 or 4."""

    OP = "quantizer"
    TYPED = frozenset({"ds_quantize", "ds_quantize_asym", "ds_sr_quantize", "ds_sr_quantize_asym"})
    QuantizationType = QuantizationType
    Symmetric = QuantizationType.Symmetric
    Asymmetric = QuantizationType.Asymmetric

    def quantize(self, input_vals: torch.Tensor, groups: int, num_bits: int, quant_type: int) -> Pair:
        """Return integers in the input's shape, with 4 bits half as long in the last dimension, and parameters."""
        checks.bits("quantize", num_bits)
        checks.last_dimension("quantize", input_vals, 8 // num_bits)
        integers, parameters = grouped.quantized(
            _rows("quantize", input_vals, groups), num_bits, _asymmetric(quant_type)
        )
        shape = [*input_vals.shape[:-1], input_vals.shape[-1] * num_bits // 8]
        return [grouped.packed(integers, num_bits).view(shape), parameters]

    def dequantize(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the numbers in float16."""
        return self.dequantize_fp32(quantized_data, params, groups, num_bits, quant_type).to(torch.float16)

    def dequantize_fp32(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the numbers in float32."""
        checks.bits("dequantize", num_bits)
        checks.last_dimension("dequantize", quantized_data, 1)
        values = _values("dequantize", quantized_data, params, groups, num_bits, quant_type)
        shape = [*quantized_data.shape[:-1], quantized_data.shape[-1] * 8 // num_bits]
        return values.view(shape)

    def swizzle_quant(
        self,
        input_vals: torch.Tensor,
        groups: int,
        num_bits: int,
        quant_type: int,
        pipeline_size: int,
        nodes: int,
        devices_per_node: int,
    ) -> Pair:
        """Return flat integers and parameters, in the order in which the first all-to-all of qgZ sends them."""
        order = pipeline_size, nodes, devices_per_node
        rows = _swizzle_rows("swizzle_quant", input_vals, groups, num_bits, order)
        integers, parameters = grouped.quantized(rows, num_bits, _asymmetric(quant_type))
        return [
            grouped.packed(grouped.swizzled(integers, *order), num_bits),
            grouped.swizzled(parameters, *order),
        ]

    def loco_swizzle_quant(
        self,
        input_vals: torch.Tensor,
        error_feedback: torch.Tensor,
        err_beta: float,
        groups: int,
        num_bits: int,
        quant_type: int,
        pipeline_size: int,
        nodes: int,
        devices_per_node: int,
    ) -> Pair:
        """Add the errors of former steps (in the order of the result) first, and update them in place.

        Source: Xie et al., arXiv:2407.04480.
        """
        order = pipeline_size, nodes, devices_per_node
        rows = grouped.swizzled(
            _swizzle_rows("loco_swizzle_quant", input_vals, groups, num_bits, order), *order
        )
        return _with_feedback("loco_swizzle_quant", rows, error_feedback, err_beta, num_bits, quant_type)

    def quantized_reduction(
        self,
        input_vals: torch.Tensor,
        input_scales: torch.Tensor,
        in_groups: int,
        out_groups: int,
        num_bits: int,
        quant_type: int,
        devices_per_node: int,
    ) -> Pair:
        """Return the sum over the devices' parts of the input, quantized anew in `out_groups` groups."""
        what = "quantized_reduction"
        rows = _sum(
            what, input_vals, input_scales, in_groups, out_groups, num_bits, quant_type, devices_per_node
        )
        integers, parameters = grouped.quantized(rows, num_bits, _asymmetric(quant_type))
        return [grouped.packed(integers, num_bits).view(_reduced(input_vals, devices_per_node)), parameters]

    def loco_quantized_reduction(
        self,
        input_vals: torch.Tensor,
        input_scales: torch.Tensor,
        error_feedback: torch.Tensor,
        err_beta: float,
        in_groups: int,
        out_groups: int,
        num_bits: int,
        quant_type: int,
        devices_per_node: int,
    ) -> Pair:
        """`quantized_reduction` of the sum and the errors of former steps, which are updated in place."""
        what = "loco_quantized_reduction"
        rows = _sum(
            what, input_vals, input_scales, in_groups, out_groups, num_bits, quant_type, devices_per_node
        )
        data, parameters = _with_feedback(what, rows, error_feedback, err_beta, num_bits, quant_type)
        return [data.view(_reduced(input_vals, devices_per_node)), parameters]

    def dequantize_int4_to_half_experimental(
        self,
        data_in: torch.Tensor,
        scale_buffer: torch.Tensor,
        min_val_buffer: torch.Tensor,
        num_group: int,
        group_size: int,
    ) -> torch.Tensor:
        """Return data / scale + minimum in float16 for unsigned integers, of which the first is in the high half."""
        data = data_in.reshape(-1).view(torch.uint8)
        halves = torch.stack([data >> 4, data & 15], 1)
        return _unsigned(halves, scale_buffer, min_val_buffer, num_group, group_size)

    def dequantize_int8_to_half_experimental(
        self,
        data_in: torch.Tensor,
        scale_buffer: torch.Tensor,
        min_val_buffer: torch.Tensor,
        num_group: int,
        group_size: int,
    ) -> torch.Tensor:
        """Return data / scale + minimum in float16 for unsigned integers of 8 bits."""
        data = data_in.view(torch.uint8)
        return _unsigned(data, scale_buffer, min_val_buffer, num_group, group_size)

    def ds_quantize(self, vals: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
        """Round each number to one of 2^bits, symmetrically, in place; return `vals`."""
        return fake_quantized("ds_quantize", vals, groups, bits, asymmetric=False, stochastic=False)

    def ds_quantize_asym(self, vals: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
        """Round each number to one of 2^bits between minimum and maximum, in place; return `vals`."""
        return fake_quantized("ds_quantize_asym", vals, groups, bits, asymmetric=True, stochastic=False)

    def ds_sr_quantize(self, vals: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
        """`ds_quantize` with stochastic rounding, by the device's default generator."""
        return fake_quantized("ds_sr_quantize", vals, groups, bits, asymmetric=False, stochastic=True)

    def ds_sr_quantize_asym(self, vals: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
        """`ds_quantize_asym` with stochastic rounding, by the device's default generator."""
        return fake_quantized("ds_sr_quantize_asym", vals, groups, bits, asymmetric=True, stochastic=True)


def _asymmetric(quant_type: Any) -> bool:
    # The enumeration of a compiled quantizer is not equal to any number.
    return int(quant_type) == QuantizationType.Asymmetric


def _rows(what: str, tensor: torch.Tensor, groups: int) -> torch.Tensor:
    """Return a float32 copy, a group a row."""
    width = checks.width(what, tensor.numel(), groups)
    return tensor.detach().reshape(groups, width).to(torch.float32, copy=True)


def _swizzle_rows(
    what: str, tensor: torch.Tensor, groups: int, bits: int, order: tuple[int, int, int]
) -> torch.Tensor:
    checks.bits(what, bits)
    checks.divides(what, "groups", groups, "pipeline_size * nodes * devices_per_node", *order)
    checks.divides(what, "the number of elements", tensor.numel(), "integers in a byte", 8 // bits)
    return _rows(what, tensor, groups)


def _values(
    what: str, data: torch.Tensor, params: torch.Tensor, groups: int, bits: int, quant_type: int
) -> torch.Tensor:
    """Return float32 numbers, a group a row."""
    integers = grouped.unpacked(data.detach(), bits)
    width = checks.width(what, integers.numel(), groups)
    columns = 1 + _asymmetric(quant_type)
    checks.parameters(what, params, groups * columns)
    return grouped.dequantized(
        integers.view(groups, width), params.reshape(groups, columns), _asymmetric(quant_type)
    )


def _sum(
    what: str,
    data: torch.Tensor,
    scales: torch.Tensor,
    in_groups: int,
    out_groups: int,
    bits: int,
    quant_type: int,
    devices: int,
) -> torch.Tensor:
    """Return the sum of the devices' parts in float32, an output group a row. Added one by one, in order."""
    checks.bits(what, bits)
    checks.last_dimension(what, data, devices)
    checks.divides(what, "in_groups", in_groups, "devices_per_node", devices)
    first, *others = _values(what, data, scales, in_groups, bits, quant_type).view(devices, -1)
    for other in others:
        first.add_(other)
    total: torch.Tensor = first.view(out_groups, checks.width(what, first.numel(), out_groups))
    return total


def _reduced(data: torch.Tensor, devices: int) -> list[int]:
    return [*data.shape[:-1], data.shape[-1] // devices]


def _with_feedback(
    what: str, rows: torch.Tensor, error: torch.Tensor, beta: float, bits: int, quant_type: int
) -> Pair:
    """Return flat integers and parameters of rows + error. The error becomes a mean of itself and the new error."""
    checks.same_size(what, "error_feedback", error, rows.numel())
    before = error.detach().reshape(rows.shape).to(torch.float32, copy=True)
    wanted = rows.add_(before)
    integers, parameters = grouped.quantized(wanted.clone(), bits, _asymmetric(quant_type))
    missed = wanted.sub_(grouped.dequantized(integers, parameters, _asymmetric(quant_type)))
    after = before.mul_(beta).add_(missed.mul_(1 - beta))
    # The error of a group with a NaN would be NaN in all later steps; the receiver has seen the NaN by then.
    after.nan_to_num_(0.0, 0.0, 0.0)
    error.detach().copy_(after.view(error.shape))
    return [grouped.packed(integers, bits), parameters]


def _unsigned(
    integers: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor, groups: int, size: int
) -> torch.Tensor:
    what = "dequantize_int*_to_half_experimental"
    for name, buffer in (("scale_buffer", scale), ("min_val_buffer", minimum)):
        checks.same_size(what, name, buffer, groups)
    checks.same_size(what, "data_in, unpacked,", integers, groups * size)
    rows = integers.reshape(groups, size).to(torch.float16)
    return rows.div_(scale.reshape(-1, 1)).add_(minimum.reshape(-1, 1))
