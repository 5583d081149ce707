# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer: integers and parameters of ZeRO++'s quantization, beside float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_KINDS = [(kind, bits) for kind in ("Symmetric", "Asymmetric") for bits in (8, 4)]
_GROUPS, _WIDTH = 24, 64
#: (pipeline, nodes, devices): of the product there are multiples in the groups.
_ORDERS = [(1, 2, 4), (2, 2, 3), (1, 1, 2), (3, 4, 1)]


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_integers_are_rounded_to_nearest(
    accelerator: DeepSpeedAccelerator, op: Any, kind: str, bits: int
) -> None:
    """`quantize` gives the nearest integer, by the parameters beside it, and `dequantize` the number back."""
    types = {torch.float16, torch.bfloat16, torch.float32} & {torch.float16, *accelerator.supported_dtypes()}
    for dtype in types:
        rows = _rows(dtype)
        data, parameters = op.quantize(rows.to(accelerator.device()), _GROUPS, bits, getattr(op, kind))
        rows = rows.double()
        step, middle = _step(parameters)
        limit = 1 << (bits - 1)
        exact = ((rows - middle) / step).clamp(-limit, limit - 1)
        integers = _unpacked(data, bits).double()
        _expect_near(integers - exact, 0.5 + 1e-3, f"quantize in {bits} bits of {dtype}", "nearest integers")
        span = rows.amax(1) - rows.amin(1) if kind == "Asymmetric" else 2 * rows.abs().amax(1)
        steps = step.view(-1) * (1 << bits) / span - 1
        # An op of a vendor may divide by 2 ** bits - 2, so that the largest number is not cut off: one of both.
        uncut = 1 / 127 if (kind, bits) == ("Symmetric", 8) and (steps > 1e-5).all() else 0.0
        _expect_near(
            steps - uncut,
            1e-5,
            f"the steps of {bits} bits",
            "the range of the group divided by 2 ** bits, or in symmetric int8 all by 2 ** bits - 2",
        )
        wanted = integers * step + middle
        for name, precision, result in (
            ("dequantize", 1e-3, torch.float16),
            ("dequantize_fp32", 1e-6, torch.float32),
        ):
            back = getattr(op, name)(data, parameters, _GROUPS, bits, getattr(op, kind))
            expect(
                back.dtype == result,
                f"{name} returns another type",
                found=str(back.dtype),
                expected=str(result),
                do="convert the result",
            )
            apart = (back.cpu().double().view(_GROUPS, _WIDTH) - wanted) / rows.abs().amax(1, keepdim=True)
            _expect_near(apart, precision, name, "step times integer, plus the middle of the range")


@pytest.mark.parametrize("order", _ORDERS, ids=str)
def test_groups_are_sent_to_their_devices(accelerator: DeepSpeedAccelerator, op: Any, order: Any) -> None:
    """`swizzle_quant` is `quantize` with the groups in the order (slice, device, node); the sum is over devices."""
    pipeline, nodes, devices = order
    rows = _rows(torch.float16).to(accelerator.device())
    data, parameters = op.swizzle_quant(rows, _GROUPS, 4, op.Symmetric, *order)
    for form, bits in itertools.product((rows.view(-1), rows.view(4, -1, 8)), (4, 8)):
        _expect_same(op, rows, form, bits, order)
    plain, steps = op.quantize(rows, _GROUPS, 4, op.Symmetric)
    places = torch.arange(_GROUPS).view(nodes, devices, pipeline, -1).permute(2, 1, 0, 3).reshape(-1)
    wanted = plain.cpu().view(_GROUPS, -1)[places].reshape(-1)
    same = torch.equal(data.cpu(), wanted) and torch.equal(parameters.cpu(), steps.cpu()[places])
    expect(
        same,
        "swizzle_quant puts groups elsewhere",
        found=f"another order for pipeline, nodes, devices = {order}",
        expected="groups by slice, then device, then node",
        do="compare the order with `accel_ops.quantizer.swizzle`",
    )
    out = _GROUPS // devices
    total = _unpacked(data, 4).double().view(_GROUPS, _WIDTH) * parameters.cpu().double()
    total = total.view(devices, out, _WIDTH).sum(0)
    reduced, step = op.quantized_reduction(data, parameters, _GROUPS, out, 4, op.Symmetric, devices)
    exact = (total / step.cpu().double()).clamp(-8, 7)
    found = _unpacked(reduced, 4).double().view(out, _WIDTH)
    _expect_near(found - exact, 0.5 + 1e-3, "quantized_reduction", "the sum of the devices' parts")


def _expect_same(op: Any, rows: torch.Tensor, form: torch.Tensor, bits: int, order: Any) -> None:
    """What is sent of groups does not depend on the shape in which they are given."""
    wanted, found = (op.swizzle_quant(given, _GROUPS, bits, op.Symmetric, *order) for given in (rows, form))
    expect(
        all(torch.equal(a.view(-1), b.view(-1)) for a, b in zip(found, wanted, strict=True)),
        f"swizzle_quant of a tensor of shape {tuple(form.shape)} sends something else",
        found=f"other integers or parameters in {bits} bits",
        expected=f"those of the same numbers in rows, {tuple(rows.shape)}",
        do="take groups in the order of memory",
    )


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_overflow_stays_visible(accelerator: DeepSpeedAccelerator, op: Any, kind: str, bits: int) -> None:
    """A group with a NaN or an infinity is not finite after `dequantize`; other groups are as without it."""
    rows = _rows(torch.float16)
    for group, bad in enumerate((float("nan"), float("inf"), float("-inf"))):
        rows[group, 7 * group] = bad
    data, parameters = op.quantize(rows.to(accelerator.device()), _GROUPS, bits, getattr(op, kind))
    back = op.dequantize(data, parameters, _GROUPS, bits, getattr(op, kind)).cpu().view(_GROUPS, _WIDTH)
    finite = back.isfinite().all(1).tolist()
    expect(
        finite == [False] * 3 + [True] * (_GROUPS - 3),
        "an overflow cannot be seen behind the quantization, or spreads",
        found=f"finite groups: {[group for group, holds in enumerate(finite) if holds]}",
        expected=f"3 to {_GROUPS - 1}",
        do="make the parameter of a group with a NaN or an infinity NaN or infinite",
    )


def _rows(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(17)
    rows = torch.randn(_GROUPS, _WIDTH, generator=generator)
    return (rows * torch.logspace(-2, 2, _GROUPS).view(-1, 1) + 0.3).to(dtype)


def _step(parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return step and middle of each group in float64."""
    numbers = parameters.cpu().double().view(_GROUPS, -1)
    step = numbers[:, :1]
    return step, numbers[:, 1:] if numbers.shape[1] == 2 else torch.zeros_like(step)


def _unpacked(data: torch.Tensor, bits: int) -> torch.Tensor:
    flat = data.cpu().view(-1).to(torch.int32)
    if bits == 4:
        low = flat & 15
        flat = torch.stack([low - 16 * (low > 7), flat >> 4], 1).view(-1)
    return flat.view(-1, _WIDTH)


def _expect_near(apart: torch.Tensor, most: float, what: str, expected: str) -> None:
    largest = float(apart.abs().max())
    expect(
        largest <= most,
        f"{what} is wrong",
        found=f"a difference of {largest:g}",
        expected=f"{expected}, within {most:g}",
        do="round to the nearest, ties to even, and limit to what the bits hold",
    )
