# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer: random rounding, and errors in float16. Samples of its functions are in the specs of ops."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops import reference
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops.spec import Numbers

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_DO = "compare it with `accel_ops.quantizers.quantizer`"
_GROUPS, _WIDTH = 24, 64


def test_stochastic_rounding_follows_the_device_s_seed(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """The same seed of the device gives the same numbers; the host's generator is neither read nor moved."""
    holds, rows = Holds(), torch.rand(4, 512, generator=torch.Generator().manual_seed(7)).to(device)
    for name in ("ds_sr_quantize_fp32", "ds_sr_quantize_asym_fp32"):
        found = []
        for host in (5, 6):
            torch.manual_seed(host)
            accelerator.manual_seed(1234)
            state = torch.get_rng_state()
            found.append(getattr(op, name)(rows.clone(), 4, 4).cpu())
            alone = torch.equal(state, torch.get_rng_state())
            holds[f"{name} leaves the host's generator alone ({host})"] = alone or device.type == "cpu"
        other = getattr(op, name)(rows.clone(), 4, 4).cpu()
        holds[f"{name} is repeated by a seed"] = torch.equal(found[0], found[1])
        holds[f"{name} goes on in its sequence"] = not torch.equal(found[1], other)
    holds.expect("stochastic rounding", "draw from the device's default generator")


_SUFFIXES = {torch.float32: "fp32", torch.float16: "fp16"}


def _rows(new: Numbers) -> torch.Tensor:
    return (new.normal(_GROUPS, _WIDTH) + 0.3) * torch.logspace(-1, 1, _GROUPS).view(-1, 1)


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
        step = float(reference.grid(rows.double(), 4, asymmetric)[0][0])
        holds.near(f"the mean of {suffix}", found.mean(1), exact.mean(1), 0.05 * step)
        holds.near(f"one of the two numbers around, of {suffix}", found, exact, 1.01 * step)
        holds.equal(f"results of one number of {suffix}", {len(row.unique()) for row in found}, {2})
    holds.expect(name, _DO)


@pytest.mark.parametrize("bits", [8, 4])
def test_float16_errors_complete_what_is_sent(op: Any, device: torch.device, bits: int) -> None:
    """Of float16 numbers and errors, what a receiver decodes plus the new error is their float16 sum, to the last bit.

    Source: DeepSpeed's unit test TestLocoQuantized, which asks for 1e-5.
    """
    new, holds = Numbers(torch.float32), Holds()
    rows, before = _rows(new).half(), (_rows(new) * 0.1).half()
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
