# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quantizer's functions one by one: layouts, overflow, sizes that do not fit, fake quantization."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.quantizer import QuantizerBuilder, QuantizerFunctions


@pytest.fixture
def op() -> Any:
    builder = QuantizerBuilder()
    assert builder.is_compatible()
    assert builder.reason == "plain torch"
    return builder.load()


def test_ties_are_rounded_to_even(op: Any) -> None:
    row = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 127.5, 128.0])
    data, parameters = op.quantize(row, 1, 8, op.Symmetric)
    assert data.tolist() == [0, 2, 2, 0, -2, -2, 127, 127]
    assert parameters.tolist() == [[1.0]]


def test_two_integers_share_a_byte_the_first_in_the_low_half(op: Any) -> None:
    row = torch.tensor([7.0, -8.0, -1.0, 3.0])
    data, _ = op.quantize(row, 1, 4, op.Symmetric)
    assert [byte & 255 for byte in data.tolist()] == [0x87, 0x3F]
    assert op.dequantize(data, torch.ones(1, 1), 1, 4, op.Symmetric).tolist() == row.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["Symmetric", "Asymmetric"])
@pytest.mark.parametrize("bits", [4, 8])
def test_overflow_is_seen_in_its_group_and_in_no_other(op: Any, dtype: Any, kind: str, bits: int) -> None:
    values = torch.ones(4, 8, dtype=dtype)
    values[0, 5], values[1, 7], values[2, 0] = float("nan"), float("inf"), float("-inf")
    data, parameters = op.quantize(values, 4, bits, getattr(op, kind))
    back = op.dequantize(data, parameters, 4, bits, getattr(op, kind))
    assert not back[:3].isfinite().any()
    assert torch.equal(back[3].float(), torch.full((8,), float(back[3, 0])))
    reduced = op.quantized_reduction(data.view(-1), parameters, 4, 4, bits, getattr(op, kind), 1)
    again = op.dequantize_fp32(*reduced, 4, bits, getattr(op, kind)).view(4, 8)
    assert not again[:3].isfinite().any()
    assert again[3].isfinite().all()


def test_error_feedback_starts_anew_after_an_overflow(op: Any) -> None:
    values, error = torch.randn(4, 8), torch.full((32,), 0.25)
    values[0, 0] = float("inf")
    op.loco_swizzle_quant(values, error, 0.5, 4, 4, op.Symmetric, 1, 1, 2)
    assert error.isfinite().all()
    assert error.view(4, 8)[0].tolist() == [0.0] * 8
    assert error.view(4, 8)[1:].abs().min() > 0


@pytest.mark.parametrize("bits", [4, 8])
def test_float16_sums_are_what_is_sent_and_the_new_error_to_the_last_bit(op: Any, bits: int) -> None:
    # As in DeepSpeed's TestLocoQuantized: what a receiver decodes in float16, plus the error, is the float16 sum.
    torch.manual_seed(3)
    values, error = torch.randn(16, 16).half(), torch.randn(256).half()
    wanted = values.view(2, 4, -1).permute(1, 0, 2).reshape(-1) + error
    pair = op.loco_swizzle_quant(values, error, 0.0, 16, bits, op.Symmetric, 1, 2, 4)
    decoded = op.dequantize(*pair, 16, bits, op.Symmetric).view(-1)
    assert torch.equal(decoded + error, wanted)

    error = torch.randn(64).half()
    first, *others = decoded.view(4, 64)
    for part in others:
        first = first + part
    wanted = first + error
    pair = op.loco_quantized_reduction(*pair, error, 0.0, 16, 4, bits, op.Symmetric, 4)
    assert torch.equal(op.dequantize(*pair, 4, bits, op.Symmetric).view(-1) + error, wanted)


def test_error_feedback_makes_the_mean_of_many_steps_exact(op: Any) -> None:
    torch.manual_seed(0)
    values, error, total = torch.randn(2, 16), torch.zeros(32), torch.zeros(32)
    for _ in range(400):
        found = op.loco_quantized_reduction(*packed(op, values), error, 0.0, 2, 2, 4, op.Symmetric, 1)
        total += op.dequantize_fp32(*found, 2, 4, op.Symmetric).view(-1)
    exact = op.dequantize_fp32(*packed(op, values), 2, 4, op.Symmetric).view(-1)
    torch.testing.assert_close(total / 400, exact, atol=2e-3, rtol=0)


def packed(op: Any, values: torch.Tensor) -> Any:
    data, parameters = op.quantize(values, 2, 4, op.Symmetric)
    return data.view(-1), parameters


def test_a_parameter_that_needs_gradients_and_strides_are_accepted(op: Any) -> None:
    values = torch.nn.Parameter(torch.randn(6, 4)).t()
    data, parameters = op.quantize(values, 4, 8, op.Symmetric)
    wanted = op.quantize(values.detach().contiguous(), 4, 8, op.Symmetric)
    assert torch.equal(data, wanted[0])
    assert torch.equal(parameters, wanted[1])
    assert not data.requires_grad


def test_inputs_stay_as_they_were(op: Any) -> None:
    values = torch.randn(4, 8)
    before = values.clone()
    for kind in (op.Symmetric, op.Asymmetric):
        op.quantize(values, 4, 8, kind)
        op.swizzle_quant(values, 4, 4, kind, 1, 2, 2)
    assert torch.equal(values, before)


def test_empty_tensors_are_empty(op: Any) -> None:
    data, parameters = op.quantize(torch.empty(2, 0), 2, 8, op.Asymmetric)
    assert data.shape == (2, 0)
    assert parameters.shape == (2, 2)
    assert op.dequantize(data, parameters, 2, 8, op.Asymmetric).shape == (2, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda op: op.quantize(torch.ones(10), 3, 8, 0),
        lambda op: op.quantize(torch.ones(10), 0, 8, 0),
        lambda op: op.quantize(torch.ones(10), 2, 6, 0),
        lambda op: op.quantize(torch.ones(2, 3), 2, 4, 0),
        lambda op: op.quantize(torch.ones(()), 1, 8, 0),
        lambda op: op.dequantize(torch.ones(8, dtype=torch.int8), torch.ones(3, 1), 2, 8, 0),
        lambda op: op.dequantize(torch.ones(8, dtype=torch.int8), torch.ones(2, 1), 2, 8, 1),
        lambda op: op.swizzle_quant(torch.ones(6, 4), 6, 4, 0, 1, 2, 2),
        lambda op: op.quantized_reduction(torch.ones(8, dtype=torch.int8), torch.ones(2), 2, 3, 8, 0, 2),
        lambda op: op.quantized_reduction(torch.ones(8, dtype=torch.int8), torch.ones(3), 3, 1, 8, 0, 2),
        lambda op: op.loco_swizzle_quant(torch.ones(4, 4), torch.ones(8), 0.5, 4, 4, 0, 1, 2, 2),
        lambda op: op.ds_quantize_fp32(torch.ones(10), 3, 8),
    ],
)
def test_sizes_that_do_not_fit_are_errors(op: Any, call: Any) -> None:
    with pytest.raises(InvalidOpArgument, match="ACC-510"):
        call(op)


@pytest.mark.parametrize("bits", [4, 8])
def test_unsigned_integers_with_minimum_and_scale(op: Any, bits: int) -> None:
    integers = torch.randint(0, 1 << bits, (3, 8), dtype=torch.uint8)
    scale, minimum = torch.tensor([2.0, 4.0, 0.5]).half(), torch.tensor([1.0, -1.0, 0.0]).half()
    data = integers if bits == 8 else integers[:, ::2] << 4 | integers[:, 1::2]
    function = getattr(op, f"dequantize_int{bits}_to_half_experimental")
    found = function(data, scale.view(3, 1), minimum, 3, 8)
    assert found.dtype == torch.float16
    assert torch.equal(found, integers.half() / scale.view(3, 1) + minimum.view(3, 1))


@pytest.mark.parametrize("name", ["ds_quantize", "ds_quantize_asym", "ds_sr_quantize", "ds_sr_quantize_asym"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_fake_quantization_is_in_place_and_within_a_step(op: Any, name: str, dtype: Any) -> None:
    torch.manual_seed(1)
    values = (torch.randn(4, 256) * 3).to(dtype)
    before = values.double()
    found = getattr(op, f"{name}_{'fp32' if dtype == torch.float32 else 'fp16'}")(values, 4, 8)
    assert found is values
    span = before.amax(1) - before.amin(1) if "asym" in name else 2 * before.abs().amax(1)
    step = (span / 256).view(4, 1)
    rounding = before.abs() * torch.finfo(dtype).eps
    assert ((values.double() - before).abs() <= step * 1.02 + rounding).all()
    assert all(len(row.unique()) <= 256 for row in values)
    assert values.double().sub(before).abs().mean() < step.mean() * (0.4 if "sr" in name else 0.3)


@pytest.mark.parametrize("name", ["ds_sr_quantize_fp32", "ds_sr_quantize_asym_fp32"])
def test_stochastic_rounding_has_no_bias(op: Any, name: str) -> None:
    torch.manual_seed(2)
    row = torch.linspace(-0.9, 0.9, 37)
    row = torch.cat([row, torch.tensor([-1.2, 1.2])])
    values = row.repeat(4000, 1)
    getattr(op, name)(values, 4000, 4)
    # Numbers near the ends are limited, as they are by rounding to even.
    torch.testing.assert_close(values.mean(0)[:-2], row[:-2], atol=0.006, rtol=0)


@pytest.mark.parametrize("name", ["ds_quantize_fp32", "ds_sr_quantize_asym_fp32"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_fake_quantization_keeps_overflow_in_its_group(op: Any, name: str, bad: float) -> None:
    values = torch.ones(2, 8)
    values[1, 3] = bad
    getattr(op, name)(values, 2, 8)
    assert values[0].isfinite().all()
    assert not values[1].isfinite().any()


def test_unknown_functions_are_told(op: Any) -> None:
    assert isinstance(op, QuantizerFunctions)
    assert not hasattr(op, "swizzle_dequant")
