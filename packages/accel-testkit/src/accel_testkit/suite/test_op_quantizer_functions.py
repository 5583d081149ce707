# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer's other functions: rounding in place, error feedback, unsigned integers, shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_testkit.suite.expect import expect

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_GROUPS, _WIDTH = 24, 64
_KINDS = [(kind, bits) for kind in ("Symmetric", "Asymmetric") for bits in (8, 4)]
_SUFFIXES = {torch.float32: "fp32", torch.float16: "fp16"}
#: DeepSpeed adds it to the range of a group.
_SMALL = 1e-5


def _rows(groups: int = _GROUPS, seed: int = 19) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(groups, _WIDTH, generator=generator) + 0.3
    return rows * torch.logspace(-1, 1, groups).view(-1, 1)


def _expect(holds: bool, function: str, found: str, expected: str) -> None:
    expect(
        holds,
        f"{function} of the quantizer is wrong",
        found=found,
        expected=expected,
        do="compare it with `accel_ops.quantizer`",
    )


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
    for dtype, suffix in _SUFFIXES.items():
        rows = _rows().to(dtype)
        ours = rows.to(device, copy=True).view(_GROUPS // 4, -1)  # groups need not be rows
        result = getattr(op, f"{name}_{suffix}")(ours, _GROUPS, bits)
        exact = rows.double()
        step, lowest, highest = _grid(exact, bits, name.endswith("asym"))
        found = ours.cpu().double().view(rows.shape)
        within = exact.clamp(lowest, highest)
        rounding = torch.finfo(dtype).eps * exact.abs().amax(1, keepdim=True)
        apart = ((found - within).abs() / (step * 0.5 * (1 + 1e-3) + rounding)).max()
        distinct = max(len(row.unique()) for row in found)
        holds = result.data_ptr() == ours.data_ptr() and float(apart) <= 1 and distinct <= 1 << bits
        _expect(
            holds,
            f"{name}_{suffix} in {bits} bits",
            f"{float(apart):.3g} times as far as the nearest, {distinct} numbers in a group",
            "the nearest numbers, in place",
        )


@pytest.mark.parametrize("name", ["ds_sr_quantize", "ds_sr_quantize_asym"])
def test_stochastic_rounding_has_no_bias(op: Any, device: torch.device, name: str) -> None:
    """A number between two becomes either, as often as it is near; the same number not always the same."""
    asymmetric = name.endswith("asym")
    for dtype, suffix in _SUFFIXES.items():
        rows = torch.full((2, 4096), 0.3).to(dtype)
        rows[:, 0], rows[:, 1] = (-4.0, 12.0) if asymmetric else (-8.0, 5.0)
        rows[1, 2:] = -2.6
        ours = rows.to(device, copy=True)
        getattr(op, f"{name}_{suffix}")(ours, 2, 4)
        found, exact = ours.cpu().double()[:, 2:], rows.double()[:, 2:]
        step = float(_grid(rows.double(), 4, asymmetric)[0][0])
        bias = float(((found - exact).mean(1) / step).abs().max())
        furthest = float((found - exact).abs().max() / step)
        distinct = {len(row.unique()) for row in found}
        _expect(
            bias < 0.05 and furthest < 1.01 and distinct == {2},
            f"{name}_{suffix}",
            f"a mean {bias:.3g} steps apart, {furthest:.3g} steps at most, {distinct} results of one number",
            "a mean that is the number, within 0.05 steps, from the two numbers around it",
        )


@pytest.mark.parametrize("bits", [8, 4])
def test_unsigned_integers_are_numbers(op: Any, device: torch.device, bits: int) -> None:
    """`dequantize_int*_to_half_experimental` is integer / scale + minimum; of two in a byte the first is high."""
    integers = torch.randint(0, 1 << bits, (6, 32), generator=torch.Generator().manual_seed(3))
    scale, minimum = torch.tensor([1.0, 2, 4, 8, 0.5, 16]), torch.tensor([0.0, -1, 3, 0.25, -8, 2])
    flat = integers.view(-1)
    data = (flat if bits == 8 else flat[::2] * 16 + flat[1::2]).to(torch.uint8).to(device)
    buffers = [buffer.half().to(device) for buffer in (scale, minimum)]
    function = getattr(op, f"dequantize_int{bits}_to_half_experimental")
    found = [
        function(given, *buffers, 6, 32) for given in (data, data.view(torch.int8).view(6, -1), data[None])
    ]
    wanted = (integers / scale[:, None] + minimum[:, None]).half().view(-1)
    same = all(torch.equal(each.cpu().view(-1), wanted) and each.dtype == torch.float16 for each in found)
    shapes = {tuple(each.shape) for each in found}
    _expect(
        same and len(shapes) == 1,
        function.__name__,
        f"other numbers, or of shapes {shapes}",
        "integer / scale + minimum, in float16 and in one shape, whatever that of the bytes",
    )


def _quantized(rows: torch.Tensor, op: Any, kind: str, bits: int) -> torch.Tensor:
    """What a receiver gets of rows, in float32 on the host, by `quantize` and `dequantize_fp32`."""
    groups = rows.shape[0]
    pair = op.quantize(rows, groups, bits, getattr(op, kind))
    back: torch.Tensor = op.dequantize_fp32(*pair, groups, bits, getattr(op, kind))
    return back.cpu().view(rows.shape)


def _expect_feedback(
    op: Any,
    call: Callable[[torch.Tensor], Any],
    rows: torch.Tensor,
    beta: float,
    kind: str,
    bits: int,
    name: str,
) -> None:
    """Send `rows` with the errors of former steps, and compare what arrives and what the errors become."""
    before = _rows(rows.shape[0], seed=23).to(rows.device) * 0.01
    error = before.clone().view(-1)
    data, parameters = call(error)
    sent = _quantized(rows + before, op, kind, bits)
    found = op.dequantize_fp32(
        data.view(rows.shape[0], -1), parameters, rows.shape[0], bits, getattr(op, kind)
    )
    after = before.cpu() * beta + (1 - beta) * ((rows + before).cpu() - sent)
    scale = rows.abs().amax(1, keepdim=True).cpu()
    apart = [
        float(((a.cpu().view(rows.shape) - b) / scale).abs().max())
        for a, b in ((found, sent), (error, after))
    ]
    _expect(
        max(apart) < 1e-5,
        name,
        f"numbers {apart[0]:.3g} and errors {apart[1]:.3g} apart, relative to the group",
        "the sum of numbers and errors, quantized; then beta times the errors plus (1 - beta) times the new ones",
    )


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_errors_are_fed_back(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """`loco_*` send numbers and former errors, in the order of `swizzle_quant`, and keep each group's new errors."""
    for groups in (_GROUPS, 2504):
        _expect_feedback_of_groups(op, groups, _rows(groups).to(device), kind, bits)


def _expect_feedback_of_groups(op: Any, groups: int, rows: torch.Tensor, kind: str, bits: int) -> None:
    order = (1, 2, 4)
    places = torch.arange(groups).view(2, 4, 1, -1).permute(2, 1, 0, 3).reshape(-1)
    _expect_feedback(
        op,
        lambda error: op.loco_swizzle_quant(rows, error, 0.8, groups, bits, getattr(op, kind), *order),
        rows[places.to(rows.device)], 0.8, kind, bits, "loco_swizzle_quant",
    )  # fmt: skip
    pair = op.quantize(rows, groups, bits, getattr(op, kind))
    parts = op.dequantize_fp32(*pair, groups, bits, getattr(op, kind)).view(4, -1)
    total = parts.sum(0).view(groups // 4, _WIDTH)
    _expect_feedback(
        op,
        lambda error: op.loco_quantized_reduction(
            *pair, error, 0.3, groups, groups // 4, bits, getattr(op, kind), 4
        ),
        total, 0.3, kind, bits, "loco_quantized_reduction",
    )  # fmt: skip


@pytest.mark.parametrize("bits", [8, 4])
def test_float16_errors_complete_what_is_sent(op: Any, device: torch.device, bits: int) -> None:
    """Of float16 numbers and errors, what a receiver decodes plus the new error is their float16 sum, to the last bit.

    Source: DeepSpeed's unit test TestLocoQuantized, which asks for 1e-5.
    """
    rows = _rows().half()
    before = (_rows(seed=23) * 0.1).half()
    error = before.to(device, copy=True).view(-1)
    pair = op.loco_swizzle_quant(rows.to(device), error, 0.0, _GROUPS, bits, op.Symmetric, 1, 1, 1)
    back = op.dequantize(*pair, _GROUPS, bits, op.Symmetric).cpu().view(rows.shape)
    apart = int((back + error.cpu().view(rows.shape) != rows + before).sum())
    sums = op.quantize(rows.to(device), _GROUPS, bits, op.Symmetric)
    first, *others = op.dequantize(*sums, _GROUPS, bits, op.Symmetric).cpu().view(4, -1)
    for other in others:
        first = first + other
    before = before.view(4, -1)[0]
    error = before.to(device, copy=True)
    pair = op.loco_quantized_reduction(*sums, error, 0.0, _GROUPS, _GROUPS // 4, bits, op.Symmetric, 4)
    back = op.dequantize(*pair, _GROUPS // 4, bits, op.Symmetric).cpu().view(-1)
    reduced = int((back + error.cpu() != first + before).sum())
    _expect(
        apart == reduced == 0,
        "loco_swizzle_quant or loco_quantized_reduction",
        f"{apart} and {reduced} numbers that differ",
        "decoded numbers plus new errors equal to the sums, which are added in float16",
    )


@pytest.mark.parametrize("bits", [8, 4])
def test_sums_are_quantized_in_any_groups(op: Any, device: torch.device, bits: int) -> None:
    """`quantized_reduction` has as many steps as `out_groups`, whatever the groups of its parts, and they fit."""
    rows = _rows().to(device)
    pair = op.quantize(rows, _GROUPS, bits, op.Symmetric)
    parts = op.dequantize_fp32(*pair, _GROUPS, bits, op.Symmetric).view(2, -1)
    wanted, wrong = parts.sum(0).cpu().double(), {}
    for groups in (1, _GROUPS // 4, _GROUPS // 2, _GROUPS):
        data, steps = op.quantized_reduction(*pair, _GROUPS, groups, bits, op.Symmetric, 2)
        back = op.dequantize_fp32(data, steps, groups, bits, op.Symmetric).cpu().double().view(groups, -1)
        largest = wanted.view(groups, -1).abs().amax(1, keepdim=True)
        apart = float(((back - wanted.view(groups, -1)).abs() * 2 ** (bits - 1) / largest).max())
        if steps.shape[0] != groups or not apart <= 1.02:  # the largest number may be cut off by a step
            wrong[groups] = (tuple(steps.shape), apart)
    _expect(
        not wrong,
        "quantized_reduction",
        f"by groups, steps and errors in steps {wrong}",
        "out_groups of each",
    )


def test_errors_stay_finite(op: Any, device: torch.device) -> None:
    """A NaN is sent, so that the overflow is seen, and leaves no error behind: later steps are not spoiled by it."""
    rows = _rows().to(device)
    rows[3, 5] = torch.nan
    error = torch.full_like(rows, 0.01).view(-1)
    op.loco_swizzle_quant(rows, error, 0.5, _GROUPS, 8, op.Symmetric, 1, 1, 1)
    errors = error.view(_GROUPS, _WIDTH).cpu()
    holds = bool(errors.isfinite().all()) and not bool(errors[3].any()) and bool(errors[4].any())
    _expect(
        holds,
        "loco_swizzle_quant",
        f"errors {errors[3, :3].tolist()} of the group with the NaN",
        "zeros there only",
    )


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_shapes_are_kept(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """Tensors of any rank keep their shape, but for the last dimension; inputs stay, and nothing is differentiable."""
    for dtype in _SUFFIXES:
        _expect_shapes(op, _rows().view(4, 6, _WIDTH).to(dtype), device, (kind, bits))


def _expect_shapes(op: Any, rows: torch.Tensor, device: torch.device, how: tuple[str, int]) -> None:
    kind, bits = getattr(op, how[0]), how[1]
    values = rows.to(device).requires_grad_()
    data, parameters = op.quantize(values, _GROUPS, bits, kind)
    back = op.dequantize_fp32(data, parameters, _GROUPS, bits, kind)
    reduced, scales = op.quantized_reduction(data, parameters, _GROUPS, 12, bits, kind, 2)
    error = torch.zeros(back.numel() // 2, device=device, requires_grad=True)
    fed, steps = op.loco_quantized_reduction(data, parameters, error, 0.5, _GROUPS, 12, bits, kind, 2)
    packed = _WIDTH * bits // 8
    half = op.dequantize(data, parameters, _GROUPS, bits, kind)
    shapes = [tuple(tensor.shape) for tensor in (data, back, half, reduced, fed)]
    wanted = [(4, 6, packed), (4, 6, _WIDTH), (4, 6, _WIDTH), (4, 6, packed // 2), (4, 6, packed // 2)]
    results = (data, parameters, back, half, reduced, scales, fed, steps)
    kept = torch.equal(values.detach().cpu(), rows)
    holds = shapes == wanted and kept and not any(tensor.requires_grad for tensor in results)
    found = f"shapes {shapes} of {rows.dtype}, input {'kept' if kept else 'changed'}"
    _expect(
        holds,
        "quantize, dequantize, dequantize_fp32 or quantized_reduction",
        found,
        f"{wanted}, without a history",
    )
