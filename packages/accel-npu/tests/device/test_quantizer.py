# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer over npu_dynamic_quant: which tensors it takes, and what makes the builder leave it alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_npu import NPU_Accelerator
from accel_npu.op_builder import quantizer
from accel_ops.quantizer import QuantizerFunctions

HALVES = [torch.float16, torch.bfloat16]
Op = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def builder() -> Any:
    return NPU_Accelerator().create_op_builder("QuantizerBuilder")


@pytest.fixture
def op() -> Any:
    return builder().load()


@pytest.fixture
def calls(op: Any, monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The type of the input of each call of the op, once it is loaded."""
    seen: list[torch.dtype] = []
    real = torch.ops.npu.npu_dynamic_quant

    def counted(rows: torch.Tensor) -> Any:
        seen.append(rows.dtype)
        return real(rows)

    monkeypatch.setattr(torch.ops.npu, "npu_dynamic_quant", counted)
    return seen


def numbers(groups: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(groups * width)
    return (torch.randn(groups, width, generator=generator) * torch.logspace(-2, 2, groups).view(-1, 1)).to(
        dtype
    )


def test_reason_says_what_the_op_computes() -> None:
    ours = builder()
    assert "if it works when first loaded" in ours.reason
    ours.load()
    assert ours.reason.startswith(
        "torch.ops.npu.npu_dynamic_quant for symmetric groups of float16 and bfloat16"
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("groups", "width"), [(1, 1), (3, 5), (4, 4096), (48, 64), (2, 11264)])
def test_numbers_come_back_within_half_a_step(
    op: Any, calls: list[Any], groups: int, width: int, dtype: torch.dtype
) -> None:
    rows = numbers(groups, width, dtype)
    data, steps = op.quantize(rows.view(-1).to("npu"), groups, 8, op.Symmetric)
    assert (data.dtype, tuple(data.shape), tuple(steps.shape)) == (torch.int8, (groups * width,), (groups, 1))
    back = op.dequantize_fp32(data, steps, groups, 8, op.Symmetric).cpu().double().view(groups, width)
    apart = (back - rows.double()).abs() / rows.double().abs().amax(1, keepdim=True)
    assert apart.max() <= 0.5001 / 127
    assert calls == [dtype]


@pytest.mark.parametrize(
    ("dtype", "width", "bits", "kind"),
    [
        (torch.float32, 8, 8, 0),
        (torch.float16, 8, 4, 0),
        (torch.float16, 8, 8, 1),
        (torch.float16, 11272, 8, 0),
    ],
    ids=["float32", "4 bits", "asymmetric", "wide groups"],
)
def test_what_the_op_does_not_take_is_plain_torch_s(
    op: Any, calls: list[Any], dtype: torch.dtype, width: int, bits: int, kind: int
) -> None:
    rows = numbers(4, width, dtype)
    found = op.quantize(rows.to("npu"), 4, bits, kind)
    wanted = QuantizerFunctions().quantize(rows, 4, bits, kind)
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(found, wanted, strict=True))
    assert calls == []


def test_host_tensors_are_plain_torch_s(op: Any, calls: list[Any]) -> None:
    rows = numbers(4, 8, torch.float16)
    for found, wanted in (
        (op.quantize(rows, 4, 8, 0), QuantizerFunctions().quantize(rows, 4, 8, 0)),
        (
            op.swizzle_quant(rows, 4, 8, 0, 1, 2, 2),
            QuantizerFunctions().swizzle_quant(rows, 4, 8, 0, 1, 2, 2),
        ),
    ):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))
    assert calls == []


def rounded_by(rounding: Callable[[torch.Tensor], torch.Tensor], levels: float = 127) -> Op:
    def quantized(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = rows.cpu().float()
        steps = x.abs().amax(-1) / levels
        integers = rounding(x / steps.unsqueeze(-1)).nan_to_num(0.0).clamp(-128, 127).to(torch.int8)
        return integers.to(rows.device), steps.to(rows.device)

    return quantized


def without_nan(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return rounded_by(torch.round)(torch.where(rows.isfinite(), rows, 0.0))


def raising(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    raise RuntimeError("aclnnDynamicQuant failed\nmore lines")


@pytest.mark.parametrize(
    ("variant", "reported"),
    [
        (rounded_by(torch.trunc), "does not round to nearest"),
        (rounded_by(torch.floor), "does not round to nearest"),
        (rounded_by(torch.round, 64), "a step of max|x| / 64, not 127 or 128"),
        (without_nan, "hides a NaN or an infinity"),
        (raising, "fails with RuntimeError: aclnnDynamicQuant failed"),
        (lambda rows: (rows, rows[:, 0].float()), "returns torch.float16"),
    ],
    ids=["truncates", "rounds down", "another step", "skips NaN", "fails", "another type"],
)
def test_an_op_that_computes_something_else_is_left_alone(
    variant: Op, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.npu, "npu_dynamic_quant", variant)
    ours = builder()
    op = ours.load()
    assert ours.reason.startswith("plain torch: ")
    assert reported in ours.reason
    rows = numbers(4, 8, torch.float16)
    wanted = QuantizerFunctions().quantize(rows, 4, 8, 0)
    found = op.quantize(rows.to("npu"), 4, 8, 0)
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(found, wanted, strict=True))


def test_ops_with_127_or_128_levels_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.npu, "npu_dynamic_quant", rounded_by(torch.round, 128))
    ours = builder()
    ours.load()
    assert ours.reason.startswith("torch.ops.npu.npu_dynamic_quant for")


def test_runtime_without_the_op_is_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantizer, "has_op", lambda name: False)
    ours = builder()
    assert ours.reason == "plain torch: this runtime has no torch.ops.npu.npu_dynamic_quant"
    assert type(ours.load()) is QuantizerFunctions
