# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""fp_quantizer over Habana's casts: codes that plain torch reads, too, and what makes the builder leave them alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_hpu import HPU_Accelerator
from accel_hpu.op_builder import fp_quantizer
from accel_ops.fp_quantizer import FPQuantizerBuilder

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def builder() -> Any:
    return HPU_Accelerator().create_op_builder("FPQuantizerBuilder")


@pytest.fixture
def op() -> Any:
    return builder().load()


@pytest.fixture
def calls(op: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of each cast that is called once the op is loaded."""
    seen: list[str] = []
    for name in ("cast_to_fp8_v2", "cast_from_fp8"):
        monkeypatch.setattr(torch.ops.hpu, name, counted(name, getattr(torch.ops.hpu, name), seen))
    return seen


def counted(name: str, real: Callable[..., Any], seen: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        seen.append(name)
        return real(*arguments)

    return call


def numbers(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return (torch.randn(6, 32, generator=generator) * torch.logspace(-3, 3, 6).view(-1, 1)).to(dtype)


def quantized(op: Any, val: torch.Tensor, mantissa: int = 3, stochastic: int = 0) -> torch.Tensor:
    out = torch.ones(val.numel() // 16, 20, dtype=torch.uint8, device=val.device)
    found: torch.Tensor = op.quantize(out, val, 16, stochastic, 8, mantissa)
    return found


def back(op: Any, data: torch.Tensor, val: torch.Tensor, mantissa: int = 3) -> torch.Tensor:
    made = torch.empty_like(val)
    op.dequantize(made, data, 16, mantissa, 7 - mantissa)
    return made.cpu()


def test_reason_says_what_the_casts_compute() -> None:
    ours = builder()
    assert "if they work when first loaded" in ours.reason
    ours.load()
    assert ours.reason == (
        "torch.ops.hpu.cast_to_fp8_v2 and hpu.cast_from_fp8 for e4m3, up to 448; plain torch for other formats"
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_plain_torch_reads_the_codes(op: Any, calls: list[str], dtype: torch.dtype) -> None:
    val = numbers(dtype).to("hpu")
    data = quantized(op, val)
    assert calls == ["cast_to_fp8_v2"]
    found, wanted = back(op, data, val), back(FPQuantizerBuilder().load(), data.cpu(), val.cpu())
    assert calls == ["cast_to_fp8_v2", "cast_from_fp8"]
    torch.testing.assert_close(found, wanted, rtol=torch.finfo(dtype).eps, atol=0)
    exact = val.cpu().double().view(-1, 16)
    allowed = (
        exact.abs() * (2**-4 + torch.finfo(dtype).eps) + exact.abs().amax(1, keepdim=True) * 2**-10 / 448
    )
    assert ((found.double().view(-1, 16) - exact).abs() <= allowed).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_codes_of_plain_torch_are_read(op: Any, dtype: torch.dtype) -> None:
    """Each group has the code of its largest number, 480, which is NaN for the cast."""
    plain = FPQuantizerBuilder().load()
    data = quantized(plain, numbers(dtype))
    assert (data[:, :16] % 128 == 127).any(1).all()
    val = numbers(dtype).to("hpu")
    torch.testing.assert_close(
        back(op, data.to("hpu"), val), back(plain, data, val.cpu()), rtol=torch.finfo(dtype).eps, atol=0
    )


def test_host_tensors_are_plain_torch_s(op: Any, calls: list[str]) -> None:
    val = numbers(torch.bfloat16)
    data = quantized(op, val)
    torch.testing.assert_close(back(op, data, val), val, rtol=2**-4 + 2**-7, atol=1e-3)
    assert torch.equal(back(op, data, val), back(FPQuantizerBuilder().load(), data, val))
    assert calls == []


@pytest.mark.parametrize(("mantissa", "stochastic"), [(2, 0), (3, 1)])
def test_other_formats_and_stochastic_rounding_are_plain_torch(
    op: Any, calls: list[str], mantissa: int, stochastic: int
) -> None:
    val = numbers(torch.bfloat16).to("hpu")
    found = back(op, quantized(op, val, mantissa, stochastic), val, mantissa)
    assert "cast_to_fp8_v2" not in calls
    apart = (found.double() - val.cpu().double()).abs().view(-1, 16)
    assert (apart <= val.cpu().double().abs().view(-1, 16).amax(1, keepdim=True) / 8).all()


def cast_to(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    real = torch.ops.hpu.cast_to_fp8_v2

    def cast(rows: torch.Tensor, scale: torch.Tensor, *rest: Any) -> Any:
        return real(change(rows * scale), None, *rest)

    return cast


def truncated(scaled: torch.Tensor) -> torch.Tensor:
    _, exponent = torch.frexp(scaled.cpu())
    unit = 2.0 ** (exponent.clamp(min=-5) - 4)
    return (torch.trunc(scaled.cpu() / unit) * unit).to(scaled.device)


@pytest.mark.parametrize(
    ("cast", "reported"),
    [
        (cast_to(truncated), "plain torch: hpu.cast_to_fp8_v2 does not round to the nearest number of e4m3"),
        (cast_to(lambda scaled: scaled / 2), "plain torch: hpu.cast_to_fp8_v2 does not round"),
        (
            cast_to(lambda scaled: scaled.clamp(-240, 240)),
            "for e4m3, up to 240; plain torch for other formats",
        ),
    ],
    ids=["truncates", "another scale", "Gaudi 2"],
)
def test_range_and_rounding_of_the_cast_are_found_out(
    cast: Any, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.hpu, "cast_to_fp8_v2", cast)
    ours = builder()
    op = ours.load()
    assert reported in ours.reason
    val = numbers(torch.bfloat16).to("hpu")
    data = quantized(op, val)
    plain = FPQuantizerBuilder().load()
    if ours.reason.startswith("plain torch"):
        assert torch.equal(data.cpu(), quantized(plain, val.cpu()))
    exact = val.cpu().double().view(-1, 16)
    apart = (back(plain, data.cpu(), val.cpu()).double().view(-1, 16) - exact).abs()
    assert (apart <= exact.abs() * (2**-4 + 2**-7) + exact.abs().amax(1, keepdim=True) * 2**-10 / 240).all()


def test_casts_that_fail_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise RuntimeError("no float8 here")

    ours = builder()
    monkeypatch.setattr(torch.ops.hpu, "cast_to_fp8_v2", fails)
    ours.load()
    assert (
        ours.reason
        == "plain torch: hpu.cast_to_fp8_v2 or hpu.cast_from_fp8 fails with RuntimeError: no float8 here"
    )


def test_a_cast_back_to_other_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.ops.hpu.cast_from_fp8
    monkeypatch.setattr(torch.ops.hpu, "cast_from_fp8", lambda data, scale, kind: real(data, None, kind))
    ours = builder()
    op = ours.load()
    assert "other formats and reading (hpu.cast_from_fp8 to bfloat16 gives other numbers)" in ours.reason
    val = numbers(torch.bfloat16).to("hpu")
    data = quantized(op, val)
    assert torch.equal(back(op, data, val), back(FPQuantizerBuilder().load(), data.cpu(), val.cpu()))


def test_runtime_without_the_casts_is_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp_quantizer, "has_op", lambda name: False)
    ours = builder()
    assert ours.reason == "plain torch: this runtime has no torch.ops.hpu.cast_to_fp8_v2"
    assert type(ours.load()) is type(FPQuantizerBuilder().load())
