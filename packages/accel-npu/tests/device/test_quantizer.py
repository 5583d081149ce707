# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer over npu_dynamic_quant: which tensors it takes, and what makes the builder leave it alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_npu import NPU_Accelerator
from accel_ops.quantizers.quantizer import QuantizerFunctions

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


def numbers(width: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4 * width)
    return (torch.randn(4, width, generator=generator) * torch.logspace(-2, 2, 4).view(-1, 1)).to(dtype)


@pytest.mark.parametrize(("dtype", "width"), [(torch.float16, 11264), (torch.bfloat16, 5)], ids=str)
def test_half_types_are_the_op_s(op, calls, dtype, width):
    op.quantize(numbers(width, dtype).to("npu"), 4, 8, op.Symmetric)
    assert calls == [dtype]


@pytest.mark.parametrize(
    ("device", "dtype", "width", "bits", "kind"),
    [
        ("cpu", torch.float16, 8, 8, 0),
        ("npu", torch.float32, 8, 8, 0),
        ("npu", torch.float16, 8, 4, 0),
        ("npu", torch.float16, 8, 8, 1),
        ("npu", torch.float16, 11272, 8, 0),
    ],
    ids=["host", "float32", "4 bits", "asymmetric", "wide groups"],
)
def test_what_the_op_does_not_take_is_plain_torch_s(op, calls, device, dtype, width, bits, kind):
    rows = numbers(width, dtype)
    found = op.quantize(rows.to(device), 4, bits, kind)
    wanted = QuantizerFunctions().quantize(rows, 4, bits, kind)
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(found, wanted, strict=True))
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


@pytest.mark.parametrize(
    ("variant", "reported"),
    [
        (rounded_by(torch.trunc), "does not round to nearest"),
        (rounded_by(torch.floor), "does not round to nearest"),
        (rounded_by(torch.round, 64), "a step of max|x| / 64, not 127 or 128"),
        (without_nan, "hides a NaN or an infinity"),
        (lambda rows: (rows, rows[:, 0].float()), "returns torch.float16"),
        (rounded_by(torch.round, 128), ""),
    ],
    ids=["truncates", "rounds down", "another step", "skips NaN", "another type", "128 levels"],
)
def test_an_op_is_used_if_it_keeps_nan_and_rounds_to_nearest_in_127_or_128_levels(
    variant, reported, monkeypatch
):
    monkeypatch.setattr(torch.ops.npu, "npu_dynamic_quant", variant)
    ours = builder()
    op = ours.load()
    assert ours.reason.startswith("plain torch: " if reported else "torch.ops.npu.npu_dynamic_quant for")
    assert reported in ours.reason
    assert (type(op) is QuantizerFunctions) == bool(reported)
