# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op fp_quantizer's codes: each means the number that DeepSpeed's formats give it, in groups of any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.holds import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("FPQuantizerBuilder")]

#: {(bits, bits of the mantissa): the largest number}; an op of a vendor may end at a smaller one.
_LARGEST = {(8, 3): 480.0, (8, 2): 114688.0, (12, 7): 510.0, (6, 2): 28.0, (4, 1): 6.0}
_FORMATS = pytest.mark.parametrize(("bits", "mantissa"), _LARGEST, ids=[f"{b}-{m}" for b, m in _LARGEST])
_ONE = torch.ones(1).view(torch.uint8)  # a step, as it follows a group
_DO = "compare it with accel_ops.fp_quantizer"


@pytest.fixture
def op(accelerator: DeepSpeedAccelerator) -> Any:
    return accelerator.create_op_builder("FPQuantizerBuilder").load()


def _numbers(bits: int, mantissa: int) -> torch.Tensor:
    """The number of each code: IEEE 754's, but for infinities and NaN, of which there are none."""
    codes, ones = torch.arange(1 << (bits - 1)), (1 << mantissa) - 1
    exponent, bias = codes >> mantissa, (1 << (bits - mantissa - 2)) - 1
    whole = (codes & ones) + (exponent > 0) * (1 << mantissa)
    numbers = whole * 2.0 ** (exponent.clamp(min=1) - bias - mantissa).double()
    return torch.cat([numbers, -numbers])


def _stream(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Bytes of codes, of which the first has the lowest bits."""
    flat = (codes.view(-1, 1) >> torch.arange(bits) & 1).view(-1, 8)
    return (flat * 2 ** torch.arange(8)).sum(1).to(torch.uint8)


def _codes(data: torch.Tensor, bits: int) -> torch.Tensor:
    flat = (data.cpu().int().view(-1, 1) >> torch.arange(8) & 1).view(-1, bits)
    return (flat * 2 ** torch.arange(bits)).sum(1)


def _quantized(op: Any, rows: torch.Tensor, bits: int, mantissa: int, device: torch.device) -> torch.Tensor:
    data = torch.zeros(1, rows.numel() * bits // 8 + 4, dtype=torch.uint8, device=device)
    return op.quantize(data, rows.to(device), rows.numel(), 0, bits, mantissa)  # type: ignore[no-any-return]


@_FORMATS
def test_codes_are_the_format_s_numbers(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """Every code is read as its number, and numbers become the nearest code; halfway between two, the even one."""
    holds, numbers = Holds(), _numbers(bits, mantissa)
    data = torch.cat([_stream(torch.arange(1 << bits), bits), _ONE]).view(1, -1).to(device)
    back = torch.full((1 << bits,), torch.nan, device=device)
    op.dequantize(back, data, 1 << bits, mantissa, bits - mantissa - 1)
    holds["the numbers of all codes"] = torch.equal(back.cpu(), numbers.float())
    largest = _LARGEST[bits, mantissa]
    step = (
        _quantized(op, torch.full((16,), largest), bits, mantissa, device)[0, -4:].cpu().view(torch.float32)
    )
    most = float(largest / step.double())  # of a group: its step is then 1
    positive = numbers[: 1 << (bits - 1)]
    known = positive[(positive > 2.0**-120) & (positive <= most)]
    halfway = (known[:-1] + known[1:]) / 2
    upper = torch.arange(1, len(known)) + int((positive <= 2.0**-120).sum())
    even = upper - upper % 2
    wanted = torch.cat([upper - 1, upper, even])
    given = torch.cat([known[:-1], known[1:], halfway])
    rows = torch.cat([torch.tensor([most] * 16), given, -given])
    rows = torch.cat([rows, torch.zeros(-len(rows) % 16)]).float()
    found = _codes(_quantized(op, rows, bits, mantissa, device)[0, :-4], bits)[16:]
    count, sign = len(wanted), 1 << (bits - 1)
    holds["the codes of positive numbers"] = torch.equal(found[:count], wanted)
    holds["the codes of negative numbers"] = torch.equal(found[count : 2 * count], wanted + sign)
    holds.expect(f"fp_quantizer in {bits} bits, {mantissa} of the mantissa,", _DO)


@_FORMATS
def test_smallest_groups_are_taken(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """A group may be as small as whole bytes allow, down to a single number: its largest comes back."""
    size = {8: 1, 12: 2, 6: 4, 4: 2}[bits]
    rows = torch.randn(5, size, generator=torch.Generator().manual_seed(113))
    data = torch.zeros(5, size * bits // 8 + 4, dtype=torch.uint8, device=device)
    op.quantize(data, rows.to(device), size, 0, bits, mantissa)
    back = torch.full((5, size), torch.nan, device=device)
    op.dequantize(back, data, size, mantissa, bits - mantissa - 1)
    part = torch.full((2, size), torch.nan, device=device)
    chosen = torch.tensor([3, 0], device=device)
    op.selective_dequantize(part, data, chosen, size, mantissa, bits - mantissa - 1)
    largest, holds = rows.abs().amax(1), Holds()
    apart = (back.cpu().abs().amax(1) - largest).abs() / largest
    holds["the largest number of a group"] = bool((apart <= (4e-3 if bits == 12 else 1e-6)).all())
    holds.same("chosen groups", part, back[[3, 0]])
    holds.expect(f"fp_quantizer of groups of {size} in {bits} bits", _DO)
