# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op fp_quantizer: its codes, random rounding, steps and ranges. Samples of its functions are in the specs of ops."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops.reference import float_numbers
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops.quantizers import LARGEST, bytes_of, codes_of

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("FPQuantizerBuilder")]

#: {bits: (bits of the mantissa, the largest number)}, DeepSpeed's.
_RANGES = {None: 480.0, 8: 480.0, 6: 28.0, 12: 510.0, 4: 6.0}
_FORMATS = pytest.mark.parametrize(("bits", "mantissa"), LARGEST)
_ONE = torch.ones(1).view(torch.uint8)  # a step, as it follows a group
_STEP = 4  # bytes
_DO = "compare it with accel_ops.quantizers.fp_quantizer"


def _quantized(
    op: Any, val: torch.Tensor, size: int, bits: int = 8, mantissa: int = 3, stochastic: int = 0
) -> Any:
    """The bytes of a tensor in groups of a size, each with its step behind it."""
    # No zeros: what is not written is seen.
    data = torch.ones(val.numel() // size, size * bits // 8 + _STEP, dtype=torch.uint8, device=val.device)
    return op.quantize(data, val, size, stochastic, bits, mantissa)


def _back(
    op: Any, data: torch.Tensor, like: torch.Tensor, size: int, bits: int = 8, mantissa: int = 3
) -> Any:
    back = torch.full_like(like, torch.nan, device=data.device, requires_grad=False)
    op.dequantize(back, data, size, mantissa, bits - mantissa - 1)
    return back


@_FORMATS
def test_codes_are_the_format_s_numbers(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """Every code is read as its number, and numbers become the nearest code; halfway between two, the even one."""
    holds, numbers = Holds(), float_numbers(bits, mantissa)
    data = torch.cat([bytes_of(torch.arange(1 << bits), bits), _ONE]).view(1, -1).to(device)
    found = _back(op, data, numbers.float(), 1 << bits, bits, mantissa)
    holds.same("the numbers of all codes", found, numbers.float())
    largest = LARGEST[bits, mantissa]
    step = _quantized(op, torch.full((16,), largest, device=device), 16, bits, mantissa)[0, -_STEP:]
    most = float(largest / step.cpu().view(torch.float32).double())  # of a group: its step is then 1
    positive = numbers[: 1 << (bits - 1)]
    known = positive[(positive > 2.0**-120) & (positive <= most)]
    halfway = (known[:-1] + known[1:]) / 2
    upper = torch.arange(1, len(known)) + int((positive <= 2.0**-120).sum())
    even = upper - upper % 2
    wanted = torch.cat([upper - 1, upper, even])
    given = torch.cat([known[:-1], known[1:], halfway])
    rows = torch.cat([torch.tensor([most] * 16), given, -given])
    rows = torch.cat([rows, torch.zeros(-len(rows) % 16)]).float().to(device)
    codes = codes_of(_quantized(op, rows, len(rows), bits, mantissa)[0, :-_STEP], bits)[16:]
    count, sign = len(wanted), 1 << (bits - 1)
    holds.same("the codes of positive numbers", codes[:count], wanted)
    holds.same("the codes of negative numbers", codes[count : 2 * count], wanted + sign)
    holds.expect(f"codes of {bits} bits, {mantissa} of the mantissa,", _DO)


def test_builder_tells_type_and_range(accelerator: DeepSpeedAccelerator) -> None:
    """The builder's `get_default_quant_dtype` is uint8, `get_quant_range` the largest number of each size."""
    builder, holds = accelerator.create_op_builder("FPQuantizerBuilder"), Holds()
    holds.equal("ranges", {bits: builder.get_quant_range(bits) for bits in _RANGES}, _RANGES)
    holds.equal("the range of no size", builder.get_quant_range(), _RANGES[None])
    holds.equal("the type", builder.get_default_quant_dtype(), torch.uint8)
    for bits in (7, 5, 0):
        holds.raises(ValueError, f"a range of {bits} bits", partial(builder.get_quant_range, bits))
    holds.expect("the builder of fp_quantizer", _DO)


@_FORMATS
def test_random_rounding_has_no_bias(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """Random rounding has no bias."""
    unit, holds = 2.0**-mantissa, Holds()
    # Numbers around 1 in steps of their group, of which the first is the largest.
    rows = torch.full((4, 8192), 1 + unit / 4)
    rows[:, 0] = LARGEST[bits, mantissa]
    data = _quantized(op, rows.to(device), 8192, bits, mantissa)
    # A power of two: 1, or 2 where the device's format ends at half the number.
    step = data[:1, -_STEP:].cpu().clone().view(torch.float32).log2().round().exp2()
    rows[:, 1:] *= step
    data = _quantized(op, rows.to(device), 8192, bits, mantissa, stochastic=1)
    random = (_back(op, data, rows, 8192, bits, mantissa).cpu() / step)[:, 1:]
    bias = float((random - 1 - unit / 4).mean() / unit)
    holds["no bias of random rounding, within 0.05 of the last place"] = abs(bias) < 0.05
    holds["two results of random rounding"] = len(random.unique()) == 2
    holds.expect(f"rounding in {bits} bits", _DO)
