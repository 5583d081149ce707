# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer extremes: sums that half would lose, numbers that it does not hold, overflow, the device's seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_DO = "compare it with `accel_ops.quantizer`"
_KINDS = [("Symmetric", 8), ("Symmetric", 4), ("Asymmetric", 8), ("Asymmetric", 4)]


def test_sums_of_devices_are_of_float32(op: Any, device: torch.device) -> None:
    """A large number that the next device's takes away again leaves what is between them, as a sum in float32 does."""
    parts = torch.zeros(3, 4, 12)
    parts[0], parts[1], parts[2] = 4096.0, 1.0, -4096.0
    rows = parts.view(12, 12).to(device)
    pair = op.quantize(rows, 12, 8, op.Symmetric)
    exact = op.dequantize_fp32(*pair, 12, 8, op.Symmetric).cpu().view(3, -1).double().sum(0)
    data, steps = op.quantized_reduction(*pair, 12, 4, 8, op.Symmetric, 3)
    found = op.dequantize_fp32(data, steps, 4, 8, op.Symmetric).cpu().view(-1).double()
    holds = Holds()
    holds["the sum of 4096, 1 and -4096"] = bool(((found - exact).abs() <= 0.05).all())
    holds.expect("quantized_reduction", "sum in float32, and quantize the sum")


def test_sums_pass_overflows_on(op: Any, device: torch.device) -> None:
    """What is not finite on one device is not finite in the sum: training then skips the step."""
    holds = Holds()
    for number in (torch.nan, torch.inf):
        rows = torch.ones(8, 16)
        rows[5, 3] = number  # of the second of two devices, in the second of its groups
        pair = op.quantize(rows.to(device), 8, 8, op.Symmetric)
        pair = op.quantized_reduction(*pair, 8, 4, 8, op.Symmetric, 2)
        groups = op.dequantize_fp32(*pair, 4, 8, op.Symmetric).cpu().view(4, 16)
        finite = groups.isfinite().all(1).tolist()
        holds[f"{number} in one group, finite {finite}"] = finite == [True, False, True, True]
    holds.expect("quantized_reduction of what is not finite", "let NaN and infinity through")


def test_numbers_of_bfloat16_keep_their_range(op: Any, device: torch.device) -> None:
    """Groups of bfloat16 numbers that float16 does not hold, huge and tiny, come back, or the type is refused."""
    rows = (torch.linspace(-1, 1, 64).view(4, 16) * torch.tensor([1e30, 1e6, 1.0, 0.1]).view(4, 1)).bfloat16()
    try:
        pair = op.quantize(rows.to(device), 4, 8, op.Symmetric)
    except Exception:  # refused
        return
    back, holds = op.dequantize_fp32(*pair, 4, 8, op.Symmetric).cpu().view(rows.shape), Holds()
    step = 2 * rows.float().abs().amax(1, keepdim=True) / 254 * 1.01
    near = ((back - rows.float()).abs() <= step).all(1).tolist()
    holds[f"groups of up to 1e30, 1e6, 1 and 0.1, found {near}"] = all(near)
    holds.expect("quantize of bfloat16", "convert to float32 before the range of a group is looked for")


def test_numbers_beyond_half_are_infinite(op: Any, device: torch.device) -> None:
    """What `dequantize` makes of numbers that float16 cannot hold is infinite, so that the overflow is seen."""
    rows, holds = torch.full((2, 8), 3e5), Holds()
    rows[1] = torch.tensor([1.0, -3e5] * 4)
    for kind, bits in _KINDS:
        pair = op.quantize(rows.to(device), 2, bits, getattr(op, kind))
        wide = op.dequantize_fp32(*pair, 2, bits, getattr(op, kind)).cpu().view(2, 8)
        half = op.dequantize(*pair, 2, bits, getattr(op, kind)).cpu().view(2, 8)
        holds[f"{kind} in {bits} bits"] = torch.equal(half.float(), wide.half().float())
    holds["300,000 is too large for float16"] = not wide.half().isfinite().all()
    holds.expect("dequantize of large numbers", "convert to float16 as torch does; do not saturate")


def test_stochastic_rounding_follows_the_device_s_seed(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """The same seed of the device gives the same numbers; the host's generator is neither read nor moved."""
    holds, rows = Holds(), torch.rand(4, 512, generator=torch.Generator().manual_seed(7)).to(device)
    on_host = device.type == "cpu"
    for name in ("ds_sr_quantize_fp32", "ds_sr_quantize_asym_fp32"):
        found = []
        for host in (5, 6):
            torch.manual_seed(host)
            accelerator.manual_seed(1234)
            state = torch.get_rng_state()
            found.append(getattr(op, name)(rows.clone(), 4, 4).cpu())
            if not on_host:
                holds[f"{name} leaves the host's generator alone ({host})"] = torch.equal(
                    state, torch.get_rng_state()
                )
        other = getattr(op, name)(rows.clone(), 4, 4).cpu()
        holds[f"{name} is repeated by a seed"] = torch.equal(found[0], found[1])
        holds[f"{name} goes on in its sequence"] = not torch.equal(found[1], other)
    holds.expect("stochastic rounding", "draw from the device's default generator")
