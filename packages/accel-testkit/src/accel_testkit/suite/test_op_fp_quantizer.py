# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op fp_quantizer: types, shapes and sizes of what it takes, its figures, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_ops.reference import float_numbers
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops import normal

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("FPQuantizerBuilder")]

#: {bits: (bits of the mantissa, the largest number)}, DeepSpeed's.
_RANGES = {None: 480.0, 8: 480.0, 6: 28.0, 12: 510.0, 4: 6.0}
#: {(bits, bits of the mantissa): the largest number}; an op of a vendor may end at a smaller one.
_LARGEST = {(8, 3): 480.0, (8, 2): 114688.0, (12, 7): 510.0, (6, 2): 28.0, (4, 1): 6.0}
_FORMATS = pytest.mark.parametrize(("bits", "mantissa"), _LARGEST)
_ONE = torch.ones(1).view(torch.uint8)  # a step, as it follows a group
_STEP = 4  # bytes
_DO = "compare it with accel_ops.fp_quantizer"


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
def test_shapes_and_types_are_taken(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, bits: int, mantissa: int
) -> None:
    """Tensors of any rank and float type, also leaves of autograd, one group or many, give what their rows give."""
    generator, holds = torch.Generator().manual_seed(73), Holds()
    for dtype in {torch.float32, *accelerator.supported_dtypes()}:
        for groups, shape in ((1, (16,)), (6, (2, 3, 16)), (3, (48, 1))):
            rows = torch.randn(groups, 16, generator=generator).to(dtype)
            val, case = rows.view(shape).to(device).requires_grad_(), f"{groups} groups of {dtype}"
            data = torch.zeros(groups, 16 * bits // 8 + _STEP, dtype=torch.uint8, device=device)
            result = op.quantize(data, val, 16, 0, bits, mantissa)
            holds[f"{case}: quantize() returns `out`"] = result is data
            alone = [_quantized(op, row.to(device), 16, bits, mantissa) for row in rows]
            holds.same(f"{case}: as each group alone", data, torch.cat(alone))
            back = _back(op, data, val, 16, bits, mantissa)
            holds[f"{case}: the shape and type of `val`"] = (back.shape, back.dtype) == (val.shape, dtype)
            holds.same(f"{case}: flat codes", _back(op, data.view(-1), val, 16, bits, mantissa), back)
            precise = _back(op, data, val.float(), 16, bits, mantissa)
            holds.same(f"{case}: rounded once", back, precise.to(dtype))
            allowed = rows.double().abs().amax(1, keepdim=True) / 2 ** (mantissa + 1) * 1.05
            holds.near(f"{case}: numbers near those given", back.view(rows.shape), rows, allowed)
            leaf = torch.zeros_like(val, requires_grad=True)
            op.dequantize(leaf, data, 16, mantissa, bits - mantissa - 1)
            holds.same(f"{case}: into a leaf of autograd", leaf, back)
    holds.expect(f"fp_quantizer's quantize() or dequantize() in {bits} bits", _DO)


def _stream(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Bytes of codes, of which the first has the lowest bits."""
    flat = (codes.view(-1, 1) >> torch.arange(bits) & 1).view(-1, 8)
    return (flat * 2 ** torch.arange(8)).sum(1).to(torch.uint8)


def _codes(data: torch.Tensor, bits: int) -> torch.Tensor:
    flat = (data.cpu().int().view(-1, 1) >> torch.arange(8) & 1).view(-1, bits)
    return (flat * 2 ** torch.arange(bits)).sum(1)


@_FORMATS
def test_codes_are_the_format_s_numbers(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """Every code is read as its number, and numbers become the nearest code; halfway between two, the even one."""
    holds, numbers = Holds(), float_numbers(bits, mantissa)
    data = torch.cat([_stream(torch.arange(1 << bits), bits), _ONE]).view(1, -1).to(device)
    found = _back(op, data, numbers.float(), 1 << bits, bits, mantissa)
    holds.same("the numbers of all codes", found, numbers.float())
    largest = _LARGEST[bits, mantissa]
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
    codes = _codes(_quantized(op, rows, len(rows), bits, mantissa)[0, :-_STEP], bits)[16:]
    count, sign = len(wanted), 1 << (bits - 1)
    holds.same("the codes of positive numbers", codes[:count], wanted)
    holds.same("the codes of negative numbers", codes[count : 2 * count], wanted + sign)
    holds.expect(f"codes of {bits} bits, {mantissa} of the mantissa,", _DO)


@_FORMATS
def test_smallest_groups_are_taken(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """A group may be as small as whole bytes allow, down to a single number: its largest comes back."""
    size, holds = {8: 1, 12: 2, 6: 4, 4: 2}[bits], Holds()
    rows = normal(5, size, seed=113).to(device)
    data = _quantized(op, rows, size, bits, mantissa)
    back, part = _back(op, data, rows, size, bits, mantissa), torch.full((2, size), torch.nan, device=device)
    chosen = torch.tensor([3, 0], device=device)
    op.selective_dequantize(part, data, chosen, size, mantissa, bits - mantissa - 1)
    largest = rows.abs().amax(1)
    allowed = largest * (4e-3 if bits == 12 else 1e-6)
    holds.near("the largest number of a group", back.abs().amax(1), largest, allowed)
    holds.same("chosen groups", part, back[[3, 0]])
    holds.expect(f"groups of {size} in {bits} bits", _DO)


@pytest.mark.parametrize(("bits", "mantissa"), [*_LARGEST, (12, 4)])
def test_numbers_come_back(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """A number comes back within half of its last place, the largest of a group exactly, and zeros are zeros."""
    exponent, holds = bits - mantissa - 1, Holds()
    exact = normal(8, 256, seed=61)
    exact *= torch.tensor([1e-3, 1.0, 30.0, 1e4]).repeat_interleave(2).view(-1, 1)
    data = _quantized(op, exact.to(device), 256, bits, mantissa)
    back = _back(op, data, exact, 256, bits, mantissa).cpu()
    steps = data[:, -_STEP:].cpu().clone().view(torch.float32)
    # Half of the last place, or of the smallest number, which is a step times a power of two.
    smallest = 2.0 ** (2 - (1 << (exponent - 1)) - mantissa)
    allowed = exact.abs() * (2.0 ** -(mantissa + 1) + 1e-6) + steps * smallest
    holds.near("numbers within half of the last place", back, exact, allowed)
    largest = exact.abs().amax(1)
    allowed = largest * (4e-3 if bits == 12 else 1e-6)
    holds.near("the largest of a group", back.abs().amax(1), largest, allowed)
    zeros = _quantized(op, torch.zeros_like(exact).to(device), 256, bits, mantissa)
    holds["zeros of zeros"] = not _back(op, zeros, exact, 256, bits, mantissa).any()
    holds.expect(f"numbers of {bits} bits, {mantissa} of the mantissa,", _DO)


def test_tiny_groups_keep_their_numbers(op: Any, device: torch.device) -> None:
    """Groups of numbers of any size come back in their own precision, beside a group of zeros."""
    sizes, holds = torch.tensor([1e-6, 0.0, 1e-9, 1.0]).view(4, 1), Holds()
    val = (torch.linspace(-1, 1, 64).view(4, 16) * sizes).to(device)
    apart = (_back(op, _quantized(op, val, 16), val, 16).cpu() - val.cpu()).abs().amax(1, keepdim=True)
    near = (apart <= sizes / 16 * 1.05).flatten().tolist()
    holds[f"groups of up to {sizes.flatten().tolist()}, found {near}"] = all(near)
    holds.expect("fp_quantizer's quantize()", _DO)


def test_chosen_parts_have_any_number_of_groups(op: Any, device: torch.device) -> None:
    """`selective_dequantize` takes indices of either type, repeated and in any order, of one group or several each."""
    val, holds = normal(12, 16, seed=79).to(device), Holds()
    data = _quantized(op, val, 16)
    back = _back(op, data, val, 16)
    for dtype in (torch.int32, torch.int64):
        for groups, places in ((1, [11, 0, 11]), (3, [2, 2, 0, 1, 3]), (4, [1])):
            found = torch.zeros(len(places), groups * 16, device=device)
            op.selective_dequantize(found, data, torch.tensor(places, dtype=dtype, device=device), 16, 3, 4)
            holds.same(f"{places} of {dtype}, of {groups} groups", found, back.view(12 // groups, -1)[places])
    holds.expect("selective_dequantize()", _DO)


def test_steps_are_read_from_any_layout(op: Any, device: torch.device) -> None:
    """`get_scales` gives (groups, 1) float32 of the first four bytes of as many rows as asked for, or refuses them."""
    steps, holds = torch.tensor([[0.5], [3.0], [1e-20]]).to(device), Holds()
    rows = torch.full((3, 6), 255, dtype=torch.uint8, device=device)
    rows[:, :_STEP] = steps.view(torch.uint8)
    spread = torch.full((5, 12), 17, dtype=torch.uint8, device=device)
    spread[:3, :8:2] = rows[:, :_STEP]
    for what, data, count in (
        ("rows as they are", rows[:, :_STEP], 3),
        ("rows with more bytes", rows, 3),
        ("bytes that are apart", spread[:, ::2], 3),
        ("some rows", rows, 2),
        ("one row, whose bytes are apart", spread[:1, ::2], 1),
    ):
        found = op.get_scales(data, count)
        holds.same(what, found, steps[:count])
        holds[f"{what} are contiguous"] = found.is_contiguous()
    for wrong, data, count in (
        ("bytes of int8", rows[:, :_STEP].view(torch.int8), 3),
        ("rows of one dimension", rows[0], 1),
        ("fewer rows than asked for", rows, 4),
        ("three bytes", rows[:, :3], 3),
    ):
        holds[f"{wrong} are refused"] = _refuses(partial(op.get_scales, data, count))
    holds.expect("get_scales()", _DO)


def test_builder_tells_type_and_range(accelerator: DeepSpeedAccelerator) -> None:
    """The builder's `get_default_quant_dtype` is uint8, `get_quant_range` the largest number of each size."""
    builder, holds = accelerator.create_op_builder("FPQuantizerBuilder"), Holds()
    holds.equal("ranges", {bits: builder.get_quant_range(bits) for bits in _RANGES}, _RANGES)
    holds.equal("the range of no size", builder.get_quant_range(), _RANGES[None])
    holds.equal("the type", builder.get_default_quant_dtype(), torch.uint8)
    for bits in (7, 5, 0):
        refused = _refuses(partial(builder.get_quant_range, bits), "get_quant_range")
        holds[f"a range of {bits} bits is refused"] = refused
    holds.expect("the builder of fp_quantizer", _DO)


def _refuses(call: Callable[[], Any], name: str = "") -> bool:
    try:
        call()
    except AccelError as error:
        return re.search(rf"\b{name}\b", error.what) is not None
    except ValueError:
        return True
    return False


@_FORMATS
def test_rounding_and_overflow(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """Random rounding has no bias, an overflow stays in its group."""
    unit, holds = 2.0**-mantissa, Holds()
    # Numbers around 1 in steps of their group, of which the first is the largest.
    rows = torch.full((4, 8192), 1 + unit / 4)
    rows[:, 0] = _LARGEST[bits, mantissa]
    data = _quantized(op, rows.to(device), 8192, bits, mantissa)
    # A power of two: 1, or 2 where the device's format ends at half the number.
    step = data[:1, -_STEP:].cpu().clone().view(torch.float32).log2().round().exp2()
    rows[:, 1:] *= step
    data = _quantized(op, rows.to(device), 8192, bits, mantissa, stochastic=1)
    random = (_back(op, data, rows, 8192, bits, mantissa).cpu() / step)[:, 1:]
    bias = float((random - 1 - unit / 4).mean() / unit)
    holds["no bias of random rounding, within 0.05 of the last place"] = abs(bias) < 0.05
    holds["two results of random rounding"] = len(random.unique()) == 2
    spoiled = torch.ones(4, 64)
    spoiled[0, 3], spoiled[1, 5], spoiled[3] = torch.nan, torch.inf, 1e-42
    data = _quantized(op, spoiled.to(device), 64, bits, mantissa)
    back = _back(op, data, spoiled, 64, bits, mantissa).cpu()
    finite = back.isfinite().all(1).tolist()
    holds["a NaN or an infinity in its group only"] = finite == [False, False, True, True]
    holds["nearly nothing of nearly nothing"] = float(back[3].abs().max()) <= 1e-36
    holds.expect(f"rounding in {bits} bits", _DO)
