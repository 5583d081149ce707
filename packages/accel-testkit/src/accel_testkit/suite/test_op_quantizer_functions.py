# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer's other functions: rounding in place, error feedback, unsigned integers, shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_testkit.suite.expect import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_DO = "compare it with `accel_ops.quantizer`"
_GROUPS, _WIDTH = 24, 64
_KINDS = [(kind, bits) for kind in ("Symmetric", "Asymmetric") for bits in (8, 4)]
_SUFFIXES = {torch.float32: "fp32", torch.float16: "fp16"}
#: DeepSpeed adds it to the range of a group.
_SMALL = 1e-5


def _rows(groups: int = _GROUPS, seed: int = 19) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(groups, _WIDTH, generator=generator) + 0.3
    return rows * torch.logspace(-1, 1, groups).view(-1, 1)


def _grid(rows: torch.Tensor, bits: int, asymmetric: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return step, lowest and highest number that stands for something, of each row."""
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    if asymmetric:
        step = (high - low + _SMALL) / (1 << bits)
        return step, low, low + ((1 << bits) - 1) * step
    step = (2 * torch.maximum(high, -low) + _SMALL) / (1 << bits)
    half = 1 << (bits - 1)
    return step, -half * step, (half - 1) * step


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["ds_quantize", "ds_quantize_asym"])
def test_numbers_are_rounded_in_place(op: Any, device: torch.device, name: str, bits: int) -> None:
    """Each number becomes the nearest of its group's 2 ** bits numbers, in the tensor that is given and returned."""
    holds = Holds()
    for dtype, suffix in _SUFFIXES.items():
        rows = _rows().to(dtype)
        ours = rows.to(device, copy=True).view(_GROUPS // 4, -1)  # groups need not be rows
        result = getattr(op, f"{name}_{suffix}")(ours, _GROUPS, bits)
        exact, found = rows.double(), ours.cpu().view(rows.shape)
        step, lowest, highest = _grid(exact, bits, name.endswith("asym"))
        rounding = torch.finfo(dtype).eps * exact.abs().amax(1, keepdim=True)
        holds.near(
            f"the nearest of {suffix}",
            found,
            exact.clamp(lowest, highest),
            step * 0.5 * (1 + 1e-3) + rounding,
        )
        holds[f"{1 << bits} of {suffix} in a group"] = max(len(row.unique()) for row in found) <= 1 << bits
        holds[f"{suffix} in place"] = result.data_ptr() == ours.data_ptr()
    holds.expect(f"{name} in {bits} bits", _DO)


@pytest.mark.parametrize("name", ["ds_sr_quantize", "ds_sr_quantize_asym"])
def test_stochastic_rounding_has_no_bias(op: Any, device: torch.device, name: str) -> None:
    """A number between two becomes either, as often as it is near; the same number not always the same."""
    asymmetric, holds = name.endswith("asym"), Holds()
    for dtype, suffix in _SUFFIXES.items():
        rows = torch.full((2, 4096), 0.3).to(dtype)
        rows[:, 0], rows[:, 1] = (-4.0, 12.0) if asymmetric else (-8.0, 5.0)
        rows[1, 2:] = -2.6
        ours = rows.to(device, copy=True)
        getattr(op, f"{name}_{suffix}")(ours, 2, 4)
        found, exact = ours.cpu().double()[:, 2:], rows.double()[:, 2:]
        step = float(_grid(rows.double(), 4, asymmetric)[0][0])
        holds.near(f"the mean of {suffix}", found.mean(1), exact.mean(1), 0.05 * step)
        holds.near(f"one of the two numbers around, of {suffix}", found, exact, 1.01 * step)
        holds.equal(f"results of one number of {suffix}", {len(row.unique()) for row in found}, {2})
    holds.expect(name, _DO)


@pytest.mark.parametrize("bits", [8, 4])
def test_unsigned_integers_are_numbers(op: Any, device: torch.device, bits: int) -> None:
    """`dequantize_int*_to_half_experimental` is integer / scale + minimum; of two in a byte the first is high."""
    integers = torch.randint(0, 1 << bits, (6, 32), generator=torch.Generator().manual_seed(3))
    scale, minimum = torch.tensor([1.0, 2, 4, 8, 0.5, 16]), torch.tensor([0.0, -1, 3, 0.25, -8, 2])
    flat = integers.view(-1)
    data = (flat if bits == 8 else flat[::2] * 16 + flat[1::2]).to(torch.uint8).to(device)
    buffers = [buffer.half().to(device) for buffer in (scale, minimum)]
    function = getattr(op, f"dequantize_int{bits}_to_half_experimental")
    wanted, shapes, holds = (integers / scale[:, None] + minimum[:, None]).half().view(-1), set(), Holds()
    for given in (data, data.view(torch.int8).view(6, -1), data[None]):
        found = function(given, *buffers, 6, 32)
        shapes.add(found.shape)
        holds.same(f"integer / scale + minimum, of bytes {tuple(given.shape)}", found.view(-1), wanted)
    holds[f"one shape, whatever that of the bytes: {shapes}"] = len(shapes) == 1
    holds.expect(function.__name__, _DO)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_errors_are_fed_back(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """`loco_*` send numbers and former errors, in the order of `swizzle_quant`, and keep each group's new errors."""
    holds, chosen = Holds(), getattr(op, kind)

    def feed(name: str, given: Any, beta: float, more: Any, rows: torch.Tensor) -> None:
        """Send `rows` with the errors of former steps, and compare what arrives and what the errors become."""
        groups, size = rows.shape[0], 1e-5 * rows.abs().amax(1, keepdim=True)
        before = _rows(groups, seed=23).to(device) * 0.01
        error = before.clone().view(-1)
        data, parameters = getattr(op, name)(*given, error, beta, *more)
        found = op.dequantize_fp32(data.view(groups, -1), parameters, groups, bits, chosen)
        pair = op.quantize(rows + before, groups, bits, chosen)
        sent = op.dequantize_fp32(*pair, groups, bits, chosen).view(rows.shape)
        after = before * beta + (1 - beta) * (rows + before - sent)
        holds.near(f"{name} of {groups} groups: the sums, quantized", found.view(rows.shape), sent, size)
        what = f"{name} of {groups} groups: beta times the errors, plus (1 - beta) times the new ones"
        holds.near(what, error.view(rows.shape), after, size)

    for groups in (_GROUPS, 2504):
        rows = _rows(groups).to(device)
        places = torch.arange(groups).view(2, 4, 1, -1).permute(2, 1, 0, 3).reshape(-1).to(device)
        feed("loco_swizzle_quant", (rows,), 0.8, (groups, bits, chosen, 1, 2, 4), rows[places])
        pair = op.quantize(rows, groups, bits, chosen)
        total = op.dequantize_fp32(*pair, groups, bits, chosen).view(4, groups // 4, _WIDTH).sum(0)
        feed("loco_quantized_reduction", pair, 0.3, (groups, groups // 4, bits, chosen, 4), total)
    holds.expect("the feedback of errors", _DO)


@pytest.mark.parametrize("bits", [8, 4])
def test_float16_errors_complete_what_is_sent(op: Any, device: torch.device, bits: int) -> None:
    """Of float16 numbers and errors, what a receiver decodes plus the new error is their float16 sum, to the last bit.

    Source: DeepSpeed's unit test TestLocoQuantized, which asks for 1e-5.
    """
    rows, before, holds = _rows().half(), (_rows(seed=23) * 0.1).half(), Holds()
    error = before.to(device, copy=True).view(-1)
    pair = op.loco_swizzle_quant(rows.to(device), error, 0.0, _GROUPS, bits, op.Symmetric, 1, 1, 1)
    back = op.dequantize(*pair, _GROUPS, bits, op.Symmetric).cpu().view(rows.shape)
    holds.same("of loco_swizzle_quant", back + error.cpu().view(rows.shape), rows + before)
    sums = op.quantize(rows.to(device), _GROUPS, bits, op.Symmetric)
    first, *others = op.dequantize(*sums, _GROUPS, bits, op.Symmetric).cpu().view(4, -1)
    for other in others:
        first = first + other
    before = before.view(4, -1)[0]
    error = before.to(device, copy=True)
    pair = op.loco_quantized_reduction(*sums, error, 0.0, _GROUPS, _GROUPS // 4, bits, op.Symmetric, 4)
    back = op.dequantize(*pair, _GROUPS // 4, bits, op.Symmetric).cpu().view(-1)
    holds.same("of loco_quantized_reduction", back + error.cpu(), first + before)
    holds.expect("decoded numbers plus new errors, in float16,", _DO)


@pytest.mark.parametrize("bits", [8, 4])
def test_sums_are_quantized_in_any_groups(op: Any, device: torch.device, bits: int) -> None:
    """`quantized_reduction` has as many steps as `out_groups`, whatever the groups of its parts, and they fit."""
    pair, holds = op.quantize(_rows().to(device), _GROUPS, bits, op.Symmetric), Holds()
    total = op.dequantize_fp32(*pair, _GROUPS, bits, op.Symmetric).view(2, -1).sum(0).cpu().double()
    for groups in (1, _GROUPS // 4, _GROUPS // 2, _GROUPS):
        data, steps = op.quantized_reduction(*pair, _GROUPS, groups, bits, op.Symmetric, 2)
        back = op.dequantize_fp32(data, steps, groups, bits, op.Symmetric).view(groups, -1)
        wanted = total.view(groups, -1)
        allowed = (
            1.02 * wanted.abs().amax(1, keepdim=True) / 2 ** (bits - 1)
        )  # the largest may be cut off by a step
        holds.near(f"sums in {groups} groups", back, wanted, allowed)
        holds.equal(f"how many steps {groups} groups have", steps.shape[0], groups)
    holds.expect("quantized_reduction", _DO)


def test_errors_stay_finite(op: Any, device: torch.device) -> None:
    """A NaN is sent, so that the overflow is seen, and leaves no error behind: later steps are not spoiled by it."""
    rows, holds = _rows().to(device), Holds()
    rows[3, 5] = torch.nan
    error = torch.full_like(rows, 0.01).view(-1)
    op.loco_swizzle_quant(rows, error, 0.5, _GROUPS, 8, op.Symmetric, 1, 1, 1)
    errors = error.view(_GROUPS, _WIDTH).cpu()
    holds["all are finite"] = errors.isfinite().all()
    holds[f"zeros in the group with the NaN: {errors[3, :3].tolist()}"] = not errors[3].any()
    holds["and there only"] = errors[4].any()
    holds.expect("the errors of loco_swizzle_quant", _DO)


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_shapes_are_kept(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """Tensors of any rank keep their shape, but for the last dimension; inputs stay, and nothing is differentiable."""
    holds, how, packed = Holds(), (bits, getattr(op, kind)), _WIDTH * bits // 8
    for dtype in _SUFFIXES:
        rows = _rows().view(4, 6, _WIDTH).to(dtype)
        values = rows.to(device).requires_grad_()
        pair = op.quantize(values, _GROUPS, *how)
        back, half = op.dequantize_fp32(*pair, _GROUPS, *how), op.dequantize(*pair, _GROUPS, *how)
        reduced = op.quantized_reduction(*pair, _GROUPS, 12, *how, 2)
        error = torch.zeros(rows.numel() // 2, device=device, requires_grad=True)
        fed = op.loco_quantized_reduction(*pair, error, 0.5, _GROUPS, 12, *how, 2)
        shapes = [tuple(tensor.shape) for tensor in (pair[0], back, half, reduced[0], fed[0])]
        wanted = [(4, 6, packed), *[(4, 6, _WIDTH)] * 2, *[(4, 6, packed // 2)] * 2]
        holds.equal(f"shapes of {dtype}", shapes, wanted)
        holds.same(f"the input of {dtype} stays", values, rows)
        results = (*pair, back, half, *reduced, *fed)
        holds[f"{dtype} without a history"] = not any(tensor.requires_grad for tensor in results)
    holds.expect("quantize, dequantize, dequantize_fp32 or a reduction", _DO)
