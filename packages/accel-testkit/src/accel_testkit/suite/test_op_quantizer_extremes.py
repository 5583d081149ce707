# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op quantizer extremes: many groups, results of their own, sums that half would lose, overflow, the device's seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.holds import Holds

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("QuantizerBuilder")]

_DO = "compare it with `accel_ops.quantizer`"
_GROUPS, _WIDTH = 2500, 16
_KINDS = [("Symmetric", 8), ("Symmetric", 4), ("Asymmetric", 8), ("Asymmetric", 4)]


def _rows(seed: int, groups: int = _GROUPS) -> torch.Tensor:
    rows = torch.randn(groups, _WIDTH, generator=torch.Generator().manual_seed(seed))
    rows *= (1 + torch.arange(groups) % 7).view(-1, 1)
    # Ranges that are a number which code may take for another.
    rows[0], rows[1] = torch.linspace(-0.5, 0.5, _WIDTH), torch.linspace(0, 1, _WIDTH)
    return rows


def _levels(rows: torch.Tensor, bits: int) -> torch.Tensor:
    """How far a number may come back from what it was, for each group: one step at most."""
    return 2 * rows.abs().amax(1, keepdim=True) / ((1 << bits) - 2) * 1.01


@pytest.mark.parametrize(("kind", "bits"), _KINDS)
def test_each_of_many_groups_is_right(op: Any, device: torch.device, kind: str, bits: int) -> None:
    """Thousands of groups come back, each within its own step, and errors are kept for each of them."""
    rows, holds, numeric = _rows(11), Holds(), getattr(op, kind)
    data, parameters = op.quantize(rows.to(device), _GROUPS, bits, numeric)
    back = op.dequantize_fp32(data, parameters, _GROUPS, bits, numeric).cpu().view(rows.shape)
    holds["groups come back"] = bool(((back - rows).abs() <= _levels(rows, bits)).all())
    before = torch.full((_GROUPS * _WIDTH,), 0.01, device=device)
    error = before.clone()
    sent = op.loco_swizzle_quant(rows.to(device), error, 0.5, _GROUPS, bits, numeric, 1, 1, 1)
    got = (
        op.dequantize_fp32(sent[0].view(_GROUPS, -1), sent[1], _GROUPS, bits, numeric).cpu().view(rows.shape)
    )
    wanted = 0.005 + 0.5 * (rows + 0.01 - got)
    close = (error.cpu().view(rows.shape) - wanted).abs() <= 1e-5 * (1 + rows.abs())
    holds["errors of every group are kept"] = bool(close.all())
    holds.expect(f"the quantizer of {_GROUPS} groups", _DO)


def _tensors(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def test_results_have_memory_of_their_own(op: Any, device: torch.device) -> None:
    """What a call returned stays as it is when the function is called again."""
    first, second, holds = _rows(3, 40).to(device), _rows(4, 40).to(device), Holds()
    pairs = [op.quantize(rows, 40, 8, op.Symmetric) for rows in (first, second)]
    calls: dict[str, Callable[[int], Any]] = {
        "quantize": lambda at: op.quantize((first, second)[at], 40, 8, op.Symmetric),
        "swizzle_quant": lambda at: op.swizzle_quant((first, second)[at], 40, 8, op.Symmetric, 1, 2, 2),
        "quantized_reduction": lambda at: op.quantized_reduction(*pairs[at], 40, 20, 8, op.Symmetric, 2),
        "dequantize": lambda at: op.dequantize(*pairs[at], 40, 8, op.Symmetric),
        "dequantize_fp32": lambda at: op.dequantize_fp32(*pairs[at], 40, 8, op.Symmetric),
    }
    for name, call in calls.items():
        results = _tensors(call(0))
        copies = [tensor.clone() for tensor in results]
        again = _tensors(call(1))
        holds[f"results of {name} stay"] = all(map(torch.equal, results, copies))
        holds[f"{name} computes anew"] = not torch.equal(again[0], copies[0])
    holds.expect("the quantizer's memory", _DO)


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
    near = ((back - rows.float()).abs() <= _levels(rows.float(), 8)).all(1).tolist()
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
