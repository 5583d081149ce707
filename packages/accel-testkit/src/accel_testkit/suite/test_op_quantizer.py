# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer: integers and parameters of ZeRO++'s quantization, beside float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds, expect_equal

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_KINDS = [(kind, bits) for kind in ("Symmetric", "Asymmetric") for bits in (8, 4)]
_GROUPS, _WIDTH = 24, 64
#: (pipeline, nodes, devices): of the product there are multiples in the groups.
_ORDERS = [(1, 2, 4), (2, 2, 3), (1, 1, 2), (3, 4, 1)]
#: Of an integer that is the nearest one.
_HALF = 0.5 + 1e-3


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_integers_are_rounded_to_nearest(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, kind: str, bits: int
) -> None:
    """`quantize` gives the nearest integer, by the parameters beside it, and `dequantize` the number back."""
    holds, chosen, limit = Holds(), getattr(op, kind), 1 << (bits - 1)
    for dtype in {torch.float16, torch.bfloat16, torch.float32} & {
        torch.float16,
        *accelerator.supported_dtypes(),
    }:
        rows = _rows(dtype)
        pair = op.quantize(rows.to(device), _GROUPS, bits, chosen)
        rows, (step, middle), integers = rows.double(), _step(pair[1]), _unpacked(pair[0], bits)
        exact = ((rows - middle) / step).clamp(-limit, limit - 1)
        holds.near(f"the nearest integers of {dtype}", integers, exact, _HALF)
        span = rows.amax(1) - rows.amin(1) if kind == "Asymmetric" else 2 * rows.abs().amax(1)
        steps = step.view(-1) * (1 << bits) / span - 1
        # An op of a vendor may divide by 2 ** bits - 2, so that the largest number is not cut off: one of both.
        uncut = 1 / 127 if (kind, bits) == ("Symmetric", 8) and (steps > 1e-5).all() else 0.0
        what = f"steps of {dtype}: the range of the group by 2 ** bits, or in symmetric int8 all by 2 ** bits - 2"
        holds.near(what, steps, torch.full_like(steps, uncut), 1e-5)
        largest = rows.abs().amax(1, keepdim=True)
        for name, precision, kept in (
            ("dequantize", 1e-3, torch.float16),
            ("dequantize_fp32", 1e-6, torch.float32),
        ):
            back = getattr(op, name)(*pair, _GROUPS, bits, chosen)
            holds.equal(f"the type of {name}", back.dtype, kept)
            what = f"{name} of {dtype}: step times integer, plus the middle of the range"
            holds.near(what, back.view(_GROUPS, _WIDTH), integers * step + middle, precision * largest)
    holds.expect(
        "quantize or dequantize", "round to the nearest, ties to even, and limit to what the bits hold"
    )


@pytest.mark.parametrize("order", _ORDERS, ids=str)
def test_groups_are_sent_to_their_devices(op: Any, device: torch.device, order: Any) -> None:
    """`swizzle_quant` is `quantize` with the groups in the order (slice, device, node); the sum is over devices."""
    (pipeline, nodes, devices), holds = order, Holds()
    rows = _rows(torch.float16).to(device)
    for form, bits in itertools.product((rows.view(-1), rows.view(4, -1, 8)), (4, 8)):
        sent = [op.swizzle_quant(given, _GROUPS, bits, op.Symmetric, *order) for given in (rows, form)]
        same = all(torch.equal(a.view(-1), b.view(-1)) for a, b in zip(*sent, strict=True))
        holds[f"shape {tuple(form.shape)} in {bits} bits: groups are taken in the order of memory"] = same
    data, parameters = op.swizzle_quant(rows, _GROUPS, 4, op.Symmetric, *order)
    plain, steps = (each.cpu() for each in op.quantize(rows, _GROUPS, 4, op.Symmetric))
    places = torch.arange(_GROUPS).view(nodes, devices, pipeline, -1).permute(2, 1, 0, 3).reshape(-1)
    holds.same("groups by slice, then device, then node", data, plain.view(_GROUPS, -1)[places].reshape(-1))
    holds.same("their parameters", parameters, steps[places])
    out = _GROUPS // devices
    parts = _unpacked(data, 4) * parameters.cpu().double()
    reduced, step = op.quantized_reduction(data, parameters, _GROUPS, out, 4, op.Symmetric, devices)
    exact = (parts.view(devices, out, _WIDTH).sum(0) / step.cpu().double()).clamp(-8, 7)
    holds.near("quantized_reduction: the sum of the devices' parts", _unpacked(reduced, 4), exact, _HALF)
    what = f"swizzle_quant for pipeline, nodes, devices = {order}"
    holds.expect(what, "compare the order with `accel_ops.quantizer.swizzle`")


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_overflow_stays_visible(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """A group with a NaN or an infinity is not finite after `dequantize`; other groups are as without it."""
    rows = _rows(torch.float16)
    for group, bad in enumerate((float("nan"), float("inf"), float("-inf"))):
        rows[group, 7 * group] = bad
    pair = op.quantize(rows.to(device), _GROUPS, bits, getattr(op, kind))
    back = op.dequantize(*pair, _GROUPS, bits, getattr(op, kind)).cpu().view(_GROUPS, _WIDTH)
    finite = [group for group, row in enumerate(back) if row.isfinite().all()]
    do = "make the parameter of a group with a NaN or an infinity NaN or infinite"
    expect_equal("which groups are finite, where the first three overflow,", finite, [*range(3, _GROUPS)], do)


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
