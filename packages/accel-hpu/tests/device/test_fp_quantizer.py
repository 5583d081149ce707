# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""fp_quantizer over Habana's casts: what they are not asked for, and what makes the builder leave them alone.

The conformance suite (op_fp_quantizer, op_runtime) shows that their codes are the format's, and that they are used.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_hpu import HPU_Accelerator
from accel_ops.quantizers.fp_quantizer import FPQuantizerBuilder

TO, FROM = "cast_to_fp8_v2", "cast_from_fp8"
PLAIN = FPQuantizerBuilder().load()
REAL_TO, REAL_FROM = (getattr(torch.ops.hpu, name) for name in (TO, FROM))


def numbers() -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return (torch.randn(6, 32, generator=generator) * torch.logspace(-3, 3, 6).view(-1, 1)).bfloat16()


def quantized(op: Any, val: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = op.quantize(
        torch.ones(12, 20, dtype=torch.uint8, device=val.device), val, 16, 0, 8, 3
    )
    return found


def back(op: Any, data: torch.Tensor, val: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(val)
    op.dequantize(made, data, 16, 3, 4)
    return made.cpu()


def test_host_tensors_are_plain_torch_s(monkeypatch):
    op = HPU_Accelerator().create_op_builder("FPQuantizerBuilder").load()
    for name in (TO, FROM):
        monkeypatch.setattr(torch.ops.hpu, name, None)
    val = numbers()
    data = quantized(op, val)
    torch.testing.assert_close(back(op, data, val), val, rtol=2**-4 + 2**-7, atol=1e-3)
    assert torch.equal(back(op, data, val), back(PLAIN, data, val))


def cast_to(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def cast(rows: torch.Tensor, scale: torch.Tensor, *rest: Any) -> Any:
        return REAL_TO(change(rows * scale), None, *rest)

    return cast


def truncated(scaled: torch.Tensor) -> torch.Tensor:
    _, exponent = torch.frexp(scaled.cpu())
    unit = 2.0 ** (exponent.clamp(min=-5) - 4)
    return (torch.trunc(scaled.cpu() / unit) * unit).to(scaled.device)


def without_scale(data: torch.Tensor, scale: torch.Tensor, kind: torch.dtype) -> Any:
    return REAL_FROM(data, None, kind)


@pytest.mark.parametrize(
    ("name", "cast", "reported"),
    [
        (TO, cast_to(truncated), "plain torch: hpu.cast_to_fp8_v2 does not round to the nearest number of e4m3"),
        (TO, cast_to(lambda scaled: scaled / 2), "plain torch: hpu.cast_to_fp8_v2 does not round"),
        (TO, cast_to(lambda scaled: scaled.clamp(-240, 240)), "for e4m3, up to 240; plain torch for other formats"),
        (FROM, without_scale, "other formats and reading (hpu.cast_from_fp8 to bfloat16 gives other numbers)"),
    ],
    ids=["truncates", "another scale", "Gaudi 2", "reads other numbers"],
)  # fmt: skip
def test_range_and_rounding_of_the_casts_are_found_out(name, cast, reported, monkeypatch):
    monkeypatch.setattr(torch.ops.hpu, name, cast)
    builder = HPU_Accelerator().create_op_builder("FPQuantizerBuilder")
    op = builder.load()
    assert reported in builder.reason
    val = numbers().to("hpu")
    data = quantized(op, val)
    if builder.reason.startswith("plain torch"):
        assert torch.equal(data.cpu(), quantized(PLAIN, val.cpu()))
    found = back(PLAIN, data.cpu(), val.cpu())
    if name == FROM:
        assert torch.equal(back(op, data, val), found)
    exact = val.cpu().double().view(-1, 16)
    apart = (found.double().view(-1, 16) - exact).abs()
    assert (apart <= exact.abs() * (2**-4 + 2**-7) + exact.abs().amax(1, keepdim=True) * 2**-10 / 240).all()
