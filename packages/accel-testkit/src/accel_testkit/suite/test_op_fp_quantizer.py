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
from accel_testkit.suite.holds import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("FPQuantizerBuilder")]

#: {bits: (bits of the mantissa, the largest number)}, DeepSpeed's.
_RANGES = {None: 480.0, 8: 480.0, 6: 28.0, 12: 510.0, 4: 6.0}
#: {(bits, bits of the mantissa): the largest number}; an op of a vendor may end at a smaller one.
_LARGEST = {(8, 3): 480.0, (8, 2): 114688.0, (12, 7): 510.0, (6, 2): 28.0, (4, 1): 6.0}
_FORMATS = pytest.mark.parametrize(("bits", "mantissa"), _LARGEST)
_ONE = torch.ones(1).view(torch.uint8)  # a step, as it follows a group
_STEP = 4  # bytes


def _expect_all(holds: dict[str, Any], what: str) -> None:
    Holds(holds).expect(f"{what} of fp_quantizer", "compare it with accel_ops.fp_quantizer")


def _back(op: Any, data: torch.Tensor, like: torch.Tensor, size: int, bits: int, mantissa: int) -> Any:
    back = torch.full_like(like, 7.0, requires_grad=False)
    op.dequantize(back, data, size, mantissa, bits - mantissa - 1)
    return back


@_FORMATS
def test_shapes_and_types_are_taken(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, bits: int, mantissa: int
) -> None:
    """Tensors of any rank and float type, also leaves of autograd, one group or many, give what their rows give."""
    generator = torch.Generator().manual_seed(73)
    holds: dict[str, Any] = {}
    for dtype in {torch.float32, *accelerator.supported_dtypes()}:
        for groups, shape in ((1, (16,)), (6, (2, 3, 16)), (3, (48, 1))):
            rows = torch.randn(groups, 16, generator=generator).to(dtype)
            val = rows.view(shape).to(device).requires_grad_()
            width = 16 * bits // 8 + _STEP
            data = torch.zeros(groups, width, dtype=torch.uint8, device=device)
            result = op.quantize(data, val, 16, 0, bits, mantissa)
            case = f"{groups} groups of {dtype}"
            apart = [torch.zeros(1, width, dtype=torch.uint8, device=device) for _ in rows]
            for one, row in zip(apart, rows, strict=True):
                op.quantize(one, row.to(device), 16, 0, bits, mantissa)
            holds[f"{case}: as each group alone"] = torch.equal(data, torch.cat(apart))
            holds[f"{case}: quantize() returns `out`"] = result is data
            back = _back(op, data, val, 16, bits, mantissa)
            flat = _back(op, data.view(-1), val, 16, bits, mantissa)
            precise = _back(op, data, val.float(), 16, bits, mantissa)
            holds[f"{case}: the shape and type of `val`"] = (back.shape, back.dtype) == (val.shape, dtype)
            holds[f"{case}: flat codes"] = torch.equal(back, flat)
            holds[f"{case}: rounded once"] = torch.equal(back, precise.to(dtype))
            largest = rows.abs().amax(1, keepdim=True)
            near = (back.detach().cpu().view(rows.shape) - rows).abs() <= largest / 2 ** (mantissa + 1) * 1.05
            holds[f"{case}: numbers near those given"] = near.all()
            leaf = torch.zeros_like(val, requires_grad=True)
            op.dequantize(leaf, data, 16, mantissa, bits - mantissa - 1)
            holds[f"{case}: into a leaf of autograd"] = torch.equal(leaf.detach(), back)
    _expect_all(holds, f"quantize() or dequantize() in {bits} bits")


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
    _expect_all(holds, f"codes of {bits} bits, {mantissa} of the mantissa,")


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
    _expect_all(holds, f"groups of {size} in {bits} bits")


@pytest.mark.parametrize(("bits", "mantissa"), [*_LARGEST, (12, 4)])
def test_numbers_come_back(op: Any, device: torch.device, bits: int, mantissa: int) -> None:
    """A number comes back within half of its last place, the largest of a group exactly, and zeros are zeros."""
    exponent = bits - mantissa - 1
    exact = torch.randn(8, 256, generator=torch.Generator().manual_seed(61))
    exact *= torch.tensor([1e-3, 1.0, 30.0, 1e4]).repeat_interleave(2).view(-1, 1)
    data = torch.ones(8, 256 * bits // 8 + _STEP, dtype=torch.uint8, device=device)
    data = op.quantize(data, exact.to(device), 256, 0, bits, mantissa)
    back = _back(op, data, exact.to(device), 256, bits, mantissa).cpu()
    steps = data[:, -_STEP:].cpu().clone().view(torch.float32)
    # Half of the last place, or of the smallest number, which is a step times a power of two.
    smallest = 2.0 ** (2 - (1 << (exponent - 1)) - mantissa)
    allowed = exact.abs() * (2.0 ** -(mantissa + 1) + 1e-6) + steps * smallest
    largest, ends_in = exact.abs().amax(1), 4e-3 if bits == 12 else 1e-6
    apart = float(((back - exact).abs() / allowed).max())
    ends = float(((back.abs().amax(1) - largest).abs() / largest).max())
    zeros = op.quantize(torch.ones_like(data), torch.zeros_like(exact).to(device), 256, 0, bits, mantissa)
    holds = {
        f"numbers within half of the last place: {apart:g} times it": apart <= 1,
        f"the largest of a group: {ends:g} apart": ends < ends_in,
        "zeros of zeros": not _back(op, zeros, exact.to(device), 256, bits, mantissa).any(),
    }
    _expect_all(holds, f"numbers of {bits} bits, {mantissa} of the mantissa,")


def test_tiny_groups_keep_their_numbers(op: Any, device: torch.device) -> None:
    """Groups of numbers of any size come back in their own precision, beside a group of zeros."""
    sizes = torch.tensor([1e-6, 0.0, 1e-9, 1.0]).view(4, 1)
    val = (torch.linspace(-1, 1, 64).view(4, 16) * sizes).to(device)
    data = op.quantize(torch.zeros(4, 20, dtype=torch.uint8, device=device), val, 16, 0, 8, 3)
    apart = (_back(op, data, val, 16, 8, 3).cpu() - val.cpu()).abs().amax(1, keepdim=True)
    near = (apart <= sizes / 16 * 1.05).flatten().tolist()
    _expect_all({f"groups of up to {sizes.flatten().tolist()}, found {near}": all(near)}, "quantize()")


def test_chosen_parts_have_any_number_of_groups(op: Any, device: torch.device) -> None:
    """`selective_dequantize` takes indices of either type, repeated and in any order, of one group or several each."""
    val = torch.randn(12, 16, generator=torch.Generator().manual_seed(79)).to(device)
    data = op.quantize(torch.zeros(12, 20, dtype=torch.uint8, device=device), val, 16, 0, 8, 3)
    back, holds = _back(op, data, val, 16, 8, 3), {}
    for dtype in (torch.int32, torch.int64):
        for groups, places in ((1, [11, 0, 11]), (3, [2, 2, 0, 1, 3]), (4, [1])):
            indexes = torch.tensor(places, dtype=dtype, device=device)
            found = torch.zeros(len(places), groups * 16, device=device)
            op.selective_dequantize(found, data, indexes, 16, 3, 4)
            wanted = back.view(12 // groups, -1)[places]
            holds[f"{places} of {dtype}, of {groups} groups"] = torch.equal(found, wanted)
    _expect_all(holds, "selective_dequantize()")


def test_steps_are_read_from_any_layout(op: Any, device: torch.device) -> None:
    """`get_scales` gives (groups, 1) float32 of the first four bytes of as many rows as asked for, or refuses them."""
    steps = torch.tensor([[0.5], [3.0], [1e-20]]).to(device)
    rows = torch.full((3, 6), 255, dtype=torch.uint8, device=device)
    rows[:, :_STEP] = steps.view(torch.uint8)
    spread = torch.full((5, 12), 17, dtype=torch.uint8, device=device)
    spread[:3, :8:2] = rows[:, :_STEP]
    found = {
        "rows as they are": op.get_scales(rows[:, :_STEP], 3),
        "rows with more bytes": op.get_scales(rows, 3),
        "bytes that are apart": op.get_scales(spread[:, ::2], 3),
    }
    holds = {
        name: torch.equal(each, steps) and each.dtype == torch.float32 and each.is_contiguous()
        for name, each in found.items()
    }
    holds |= {
        f"{wrong} are refused": _refuses(partial(op.get_scales, data, count))
        for wrong, data, count in (
            ("bytes of int8", rows[:, :_STEP].view(torch.int8), 3),
            ("rows of one dimension", rows[0], 1),
            ("fewer rows than asked for", rows, 4),
            ("three bytes", rows[:, :3], 3),
        )
    }
    holds["some rows"] = torch.equal(op.get_scales(rows, 2), steps[:2])
    holds["one row, whose bytes are apart"] = torch.equal(op.get_scales(spread[:1, ::2], 1), steps[:1])
    _expect_all(holds, "get_scales()")


def test_builder_tells_type_and_range(accelerator: DeepSpeedAccelerator) -> None:
    """The builder's `get_default_quant_dtype` is uint8, `get_quant_range` the largest number of each size."""
    builder = accelerator.create_op_builder("FPQuantizerBuilder")
    found = {bits: builder.get_quant_range(bits) for bits in _RANGES}
    holds = {
        f"ranges {_RANGES}": found == _RANGES and builder.get_quant_range() == _RANGES[None],
        "torch.uint8": builder.get_default_quant_dtype() == torch.uint8,
        "no range of 7, 5 or 0 bits": all(
            _refuses(partial(builder.get_quant_range, bits), "get_quant_range") for bits in (7, 5, 0)
        ),
    }
    _expect_all(holds, "the builder")


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
    exponent, unit = bits - mantissa - 1, 2.0**-mantissa
    largest = _LARGEST[bits, mantissa]

    def around(rows: torch.Tensor, stochastic: int) -> torch.Tensor:
        """What becomes of numbers around 1 in steps of their group, of which the first is the largest."""
        data = torch.zeros(len(rows), rows.shape[1] * bits // 8 + _STEP, dtype=torch.uint8, device=device)
        ours = rows.clone()
        ours[:, 0], size = largest, rows.shape[1]
        op.quantize(data, ours.to(device), size, 0, bits, mantissa)
        # A power of two: 1, or 2 where the device's format ends at half the number.
        step = data[:1, -_STEP:].cpu().clone().view(torch.float32).log2().round().exp2()
        ours[:, 1:] *= step
        op.quantize(data, ours.to(device), size, stochastic, bits, mantissa)
        return _back(op, data, ours.to(device), size, bits, mantissa).cpu() / step  # type: ignore[no-any-return]

    random = around(torch.full((4, 8192), 1 + unit / 4), 1)[:, 1:]
    bias = float((random - 1 - unit / 4).mean() / unit)
    spoiled = torch.ones(4, 64)
    spoiled[0, 3], spoiled[1, 5], spoiled[3] = torch.nan, torch.inf, 1e-42
    data = torch.zeros(4, 64 * bits // 8 + _STEP, dtype=torch.uint8, device=device)
    data = op.quantize(data, spoiled.to(device), 64, 0, bits, mantissa)
    back = torch.zeros(4, 64, device=device)
    op.dequantize(back, data, 64, mantissa, exponent)
    finite = back.isfinite().all(1).tolist()
    _expect_all(
        {
            "no bias of random rounding, within 0.05 of the last place": abs(bias) < 0.05,
            "two results of random rounding": len(random.unique()) == 2,
            "a NaN or an infinity in its group only": finite == [False, False, True, True],
            "nearly nothing of nearly nothing": float(back[3].abs().max()) <= 1e-36,
        },
        f"rounding in {bits} bits",
    )  # fmt: skip
