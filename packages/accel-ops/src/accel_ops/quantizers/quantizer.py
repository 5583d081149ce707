# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's quantizer in plain torch: integers of 8 and 4 bits in groups, as ZeRO++ sends them.

Symmetric: integer = x * scale, scale = 2^bits / (2 max|x|). Asymmetric: integer = (x - offset) * scale, scale =
2^bits / (max - min), offset = (max + min) / 2. Integers are rounded to even and limited to what the bits hold.
1 / scale and the offset are kept with them. A group is a row of a matrix. Source: Wang et al., arXiv:2306.10209; the
layouts are DeepSpeed's.

A group with a NaN or an infinity becomes NaN (or infinite) as a whole, so that an overflow is seen by the receiver.

Error feedback (`loco_*`) computes in float32, except for float16 numbers and errors. These are added in float16, as
DeepSpeed's kernels add them, and so are the decoded parts of a reduction. The new error is then the sum minus what a
receiver decodes in float16: with beta = 0 the two are the sum to the last bit.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import torch

from accel_core.errors import InvalidOpArgument
from accel_core.op_builder import OpFunctions
from accel_ops.op import Op

Pair = list[torch.Tensor]
#: Pipeline size, nodes, devices of a node: how qgZ divides the groups.
Order = tuple[int, int, int]


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
        check_bits("quantize", num_bits)
        check_last_dimension("quantize", input_vals, 8 // num_bits)
        data, parameters = self._quantized("quantize", input_vals, groups, num_bits, quant_type)
        shape = [*input_vals.shape[:-1], input_vals.shape[-1] * num_bits // 8]
        return [data.view(shape), parameters]

    def dequantize(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the numbers in float16."""
        return self._dequantized(quantized_data, params, groups, num_bits, quant_type, torch.float16)

    def dequantize_fp32(
        self, quantized_data: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: int
    ) -> torch.Tensor:
        """Return the numbers in float32."""
        return self._dequantized(quantized_data, params, groups, num_bits, quant_type, torch.float32)

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
        what, order = "swizzle_quant", (pipeline_size, nodes, devices_per_node)
        _check_order(what, input_vals, groups, num_bits, order)
        return self._quantized(what, input_vals, groups, num_bits, quant_type, order)

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
        what, order = "loco_swizzle_quant", (pipeline_size, nodes, devices_per_node)
        _check_order(what, input_vals, groups, num_bits, order)
        return self._quantized(
            what, input_vals, groups, num_bits, quant_type, order, error_feedback, err_beta
        )

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
        """Return the sum over the devices' parts of the input, quantized again in `out_groups` groups."""
        groups = in_groups, out_groups
        return self._reduced(
            "quantized_reduction", input_vals, input_scales, groups, num_bits, quant_type, devices_per_node
        )

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
        what, groups = "loco_quantized_reduction", (in_groups, out_groups)
        rest = groups, num_bits, quant_type, devices_per_node
        return self._reduced(what, input_vals, input_scales, *rest, error_feedback, err_beta)

    def _quantized(
        self,
        what: str,
        values: torch.Tensor,
        groups: int,
        bits: int,
        kind: int,
        order: Order = (1, 1, 1),
        error: torch.Tensor | None = None,
        beta: float = 0.0,
    ) -> Pair:
        """Return flat integers and parameters in an order of qgZ, with error feedback if there is an error."""
        rows = _rows(what, values, groups)
        if error is not None:
            half = values.dtype == error.dtype == torch.float16
            dtype = torch.float16 if half else torch.float32
            return _with_feedback(what, swizzle(rows, *order), error, beta, bits, kind, dtype)
        integers, parameters = quantize_groups(rows, bits, _asymmetric(kind))
        return [pack(swizzle(integers, *order), bits), swizzle(parameters, *order)]

    def _dequantized(
        self,
        data: torch.Tensor,
        parameters: torch.Tensor,
        groups: int,
        bits: int,
        kind: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """Return the numbers, computed in float32."""
        check_bits("dequantize", bits)
        check_last_dimension("dequantize", data, 1)
        values = _values("dequantize", data, parameters, groups, bits, kind)
        return values.view([*data.shape[:-1], data.shape[-1] * 8 // bits]).to(dtype)

    def _reduced(
        self,
        what: str,
        data: torch.Tensor,
        parameters: torch.Tensor,
        groups: tuple[int, int],
        bits: int,
        kind: int,
        devices: int,
        error: torch.Tensor | None = None,
        beta: float = 0.0,
    ) -> Pair:
        """Return the sum of the devices' parts. groups: those of the input and of the result."""
        half = error is not None and error.dtype == torch.float16
        dtype = torch.float16 if half else torch.float32
        rows = _sum(what, data, parameters, *groups, bits, kind, devices, dtype)
        if error is None:
            integers, made = quantize_groups(rows, bits, _asymmetric(kind))
            summed = pack(integers, bits)
        else:
            summed, made = _with_feedback(what, rows, error, beta, bits, kind, dtype)
        return [summed.view([*data.shape[:-1], data.shape[-1] // devices]), made]

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
    width = group_width(what, tensor.numel(), groups)
    return tensor.detach().reshape(groups, width).to(torch.float32, copy=True)


def _check_order(what: str, tensor: torch.Tensor, groups: int, bits: int, order: Order) -> None:
    check_bits(what, bits)
    check_divides(what, "groups", groups, "pipeline_size * nodes * devices_per_node", *order)
    check_divides(what, "the number of elements", tensor.numel(), "integers in a byte", 8 // bits)


def _values(
    what: str, data: torch.Tensor, params: torch.Tensor, groups: int, bits: int, quant_type: int
) -> torch.Tensor:
    """Return float32 numbers, a group a row."""
    integers = unpack(data.detach(), bits)
    width = group_width(what, integers.numel(), groups)
    columns = 1 + _asymmetric(quant_type)
    check_same_size(what, "the parameters' size", params, groups * columns)
    return dequantize_groups(
        integers.view(groups, width), params.detach().reshape(groups, columns), _asymmetric(quant_type)
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
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the sum of the devices' parts, an output group a row. Added one by one in `dtype`, in order."""
    check_bits(what, bits)
    check_last_dimension(what, data, devices)
    check_divides(what, "in_groups", in_groups, "devices_per_node", devices)
    first, *others = _values(what, data, scales, in_groups, bits, quant_type).to(dtype).view(devices, -1)
    for other in others:
        first.add_(other)
    total: torch.Tensor = first.view(out_groups, group_width(what, first.numel(), out_groups))
    return total


def _with_feedback(
    what: str,
    rows: torch.Tensor,
    error: torch.Tensor,
    beta: float,
    bits: int,
    quant_type: int,
    dtype: torch.dtype,
) -> Pair:
    """Return flat integers and parameters of rows + error. The error becomes a mean of itself and the new error.

    dtype: to which the sum and the numbers that a receiver decodes are rounded.
    """
    check_same_size(what, "error_feedback", error, rows.numel())
    before = error.detach().reshape(rows.shape).to(torch.float32, copy=True)
    wanted = rows.add_(before).to(dtype).to(torch.float32)
    integers, parameters = quantize_groups(wanted.clone(), bits, _asymmetric(quant_type))
    missed = wanted.sub_(dequantize_groups(integers, parameters, _asymmetric(quant_type)).to(dtype))
    after = before.mul_(beta).add_(missed.mul_(1 - beta))
    # The error of a group with a NaN would be NaN in all later steps; the receiver has seen the NaN by then.
    after.nan_to_num_(0.0, 0.0, 0.0)
    error.detach().copy_(after.view(error.shape))
    return [pack(integers, bits), parameters]


def _unsigned(
    integers: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor, groups: int, size: int
) -> torch.Tensor:
    what = "dequantize_int*_to_half_experimental"
    for name, buffer in (("scale_buffer", scale), ("min_val_buffer", minimum)):
        check_same_size(what, name, buffer, groups)
    check_same_size(what, "data_in, unpacked,", integers, groups * size)
    rows = integers.reshape(groups, size).to(torch.float16)
    return rows.div_(scale.reshape(-1, 1)).add_(minimum.reshape(-1, 1))


QUANTIZER = Op(
    "quantizer",
    "QuantizerBuilder",
    "Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights.",
    QuantizerFunctions,
)
QuantizerBuilder = QUANTIZER.builder(__name__)


def quantize_groups(values: torch.Tensor, bits: int, asymmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 integers and float32 parameters, a column or two. `values` are float32, and are overwritten.

    Each operation is rounded on its own, in this order, so that every device computes the same.
    """
    if not values.shape[1]:
        return values.to(torch.int8), values.new_ones(values.shape[0], 1 + asymmetric)
    highest, lowest = values.amax(1, keepdim=True), values.amin(1, keepdim=True)
    if asymmetric:
        span, levels = highest - lowest, float(1 << bits)
        offset = highest.add_(lowest).div_(2)
        values.sub_(offset)
    else:
        span, levels = torch.maximum(highest, lowest.neg()), float(1 << (bits - 1))
    # Not `levels / span`, which torch computes as a product with the reciprocal.
    scale = torch.full_like(span, levels).div_(span).masked_fill_(span == 0, 1.0)
    limit = 1 << (bits - 1)
    integers = values.mul_(scale).round_().clamp_(-limit, limit - 1).nan_to_num_(0.0).to(torch.int8)
    parameters = torch.ones_like(scale).div_(scale)
    return integers, torch.cat([parameters, offset], 1) if asymmetric else parameters


def dequantize_groups(integers: torch.Tensor, parameters: torch.Tensor, asymmetric: bool) -> torch.Tensor:
    """Return float32 numbers of integers in rows. `parameters` are those of `quantize_groups`."""
    values = integers.to(torch.float32).mul_(parameters[:, :1])
    return values.add_(parameters[:, 1:2]) if asymmetric else values


def pack(integers: torch.Tensor, bits: int) -> torch.Tensor:
    """Return a flat tensor of int8; of two integers of 4 bits the first is in the low half of the byte."""
    flat = integers.reshape(-1)
    if bits == 8:
        return flat
    pairs = flat.view(-1, 2)
    # Sixteen times the high one is within int8, and the low half is added without a carry.
    return pairs[:, 1] * 16 + (pairs[:, 0] & 15)


def unpack(data: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the integers in a tensor of bytes; of 4 bits as pairs."""
    flat = data.reshape(-1).view(torch.int8)
    if bits == 8:
        return flat
    low = flat & 15
    return torch.stack([low - 16 * (low > 7).to(torch.int8), flat >> 4], 1)


def swizzle(rows: torch.Tensor, pipeline: int, nodes: int, devices: int) -> torch.Tensor:
    """Return the rows in the order of the first all-to-all of qgZ.

    Rows lie as (node, device, slice, row) before, and as (slice, device, node, row) after it: the parts for one
    device of the own node are side by side.
    """
    size = len(rows) // (nodes * devices * pipeline)  # not -1, which rows of no elements leave open
    parts = rows.view(nodes, devices, pipeline, size, *rows.shape[1:])
    return parts.permute(2, 1, 0, *range(3, parts.dim())).reshape(rows.shape)


#: DeepSpeed adds it to the range of a group, so that a group of zeros is not divided by zero.
_SMALL = 1e-5


@torch.no_grad()
def fake_quantized(
    what: str, vals: torch.Tensor, groups: int, bits: int, *, asymmetric: bool, stochastic: bool
) -> torch.Tensor:
    """Round `vals` in place, computed in float32; return them. A group with a NaN or an infinity becomes NaN."""
    if not vals.is_floating_point():
        raise _invalid(what, f"vals of {vals.dtype}", "a float type")
    width = group_width(what, vals.numel(), groups)
    if not vals.numel():
        return vals
    rows = vals.detach().reshape(groups, width).to(torch.float32)  # perhaps `vals` itself
    highest, lowest = rows.amax(1, keepdim=True), rows.amin(1, keepdim=True)
    if asymmetric:
        limits = 0, (1 << bits) - 1
        step = (highest - lowest).add_(_SMALL).div_(1 << bits)
        rows.sub_(lowest)
    else:
        limits = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        step = torch.maximum(highest, lowest.neg()).mul_(2).add_(_SMALL).div_(1 << bits)
    rows.div_(step)
    rounded = rows.add_(torch.rand_like(rows)).floor_() if stochastic else rows.round_()
    rounded.clamp_(*limits).mul_(step)
    if asymmetric:
        rounded.add_(lowest)
    # 0 times an infinite step is NaN, but an integer times it is infinite: one kind for the whole group.
    rounded.masked_fill_(~step.isfinite(), torch.nan)
    vals.detach().copy_(rounded.view(vals.shape))
    return vals


def check_bits(what: str, number: int) -> None:
    """Raise InvalidOpArgument unless the number of bits is 8 or 4."""
    if number not in (4, 8):
        raise _invalid(what, f"num_bits = {number}", "8 or 4")


def group_width(what: str, numel: int, groups: int) -> int:
    """Return the size of a group. Raises InvalidOpArgument if the groups do not divide the elements."""
    check_divides(what, "the number of elements", numel, "groups", groups)
    return numel // groups


def check_divides(what: str, name: str, number: int, by: str, *factors: int) -> None:
    """Raise InvalidOpArgument unless the product of the factors divides the number."""
    divisor = math.prod(factors)
    if min(factors) < 1 or number % divisor:
        product = " * ".join(map(str, factors))
        raise _invalid(what, f"{name} = {number}, {by} = {product}", f"a multiple of {by}")


def check_last_dimension(what: str, tensor: torch.Tensor, divisor: int) -> None:
    """Raise InvalidOpArgument unless the tensor has a last dimension, which is a multiple."""
    if not tensor.dim() or divisor < 1 or tensor.shape[-1] % divisor:
        raise _invalid(
            what, f"shape {tuple(tensor.shape)}", f"a last dimension that is a multiple of {divisor}"
        )


def check_same_size(what: str, name: str, tensor: torch.Tensor, count: int) -> None:
    """Raise InvalidOpArgument unless the tensor has as many elements."""
    if tensor.numel() != count:
        raise _invalid(what, f"{name} has {tensor.numel()} elements", f"{count}")


def _invalid(what: str, found: str, expected: str) -> InvalidOpArgument:
    return InvalidOpArgument(
        f"the quantizer's {what} cannot use these arguments: {found}; expected {expected}",
        do="pass what fits, or turn zero_quantized_weights and zero_quantized_gradients off",
    )
