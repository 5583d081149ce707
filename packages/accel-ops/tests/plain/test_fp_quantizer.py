# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of few bits with an exponent: each is the nearest there is, and back; beside a list of all numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.fp_quantizer import FPQuantizerBuilder

#: {(bits, bits of the mantissa): largest number}
FORMATS = {(8, 3): 480.0, (8, 2): 114688.0, (12, 7): 510.0, (6, 2): 28.0, (4, 1): 6.0}
E4M3 = (8, 3)
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(scope="module")
def op() -> Any:
    return FPQuantizerBuilder().load()


def all_numbers(form: tuple[int, int]) -> Any:
    """The numbers of the codes that are not negative, from the definition of the format."""
    bits, mantissa = form
    bias = 2 ** (bits - mantissa - 2) - 1
    numbers = []
    for code in range(2 ** (bits - 1)):
        exponent, fraction = divmod(code, 2**mantissa)
        part = fraction / 2**mantissa
        numbers.append(2.0 ** (exponent - bias) * (1 + part) if exponent else 2.0 ** (1 - bias) * part)
    return np.array(numbers)


def quantized(
    op: Any, val: torch.Tensor, size: int, form: tuple[int, int] = E4M3, stochastic: int = 0
) -> torch.Tensor:
    out = torch.ones(val.numel() // size, size * form[0] // 8 + 4, dtype=torch.uint8)
    assert op.quantize(out, val, size, stochastic, *form) is out
    return out


def back(
    op: Any, data: torch.Tensor, like: torch.Tensor, size: int, form: tuple[int, int] = E4M3
) -> torch.Tensor:
    val = torch.empty_like(like)
    op.dequantize(val, data, size, form[1], form[0] - 1 - form[1])
    return val


def codes_in(data: torch.Tensor, bits: int) -> Any:
    """The codes of each group, of which the first has the lowest bits of the first byte."""
    stream = np.unpackbits(data[:, :-4].numpy(), axis=1, bitorder="little")
    return stream.reshape(len(data), -1, bits) @ (1 << np.arange(bits))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_each_code_is_the_nearest_number(
    op: Any, seed: int, form: tuple[int, int], dtype: torch.dtype
) -> None:
    draw = np.random.default_rng(seed)
    groups, size = int(draw.integers(1, 7)), 4 * int(draw.integers(1, 75))
    rows = draw.standard_normal((groups, size)) * 10 ** draw.uniform(-4, 3, (groups, 1))
    rows *= 2.0 ** -draw.integers(0, 20, rows.shape)
    val = torch.from_numpy(rows).to(dtype)
    data = quantized(op, val, size, form)
    exact = val.double().numpy()
    step = np.abs(exact).max(1, keepdims=True) / FORMATS[form]
    reported = data[:, -4:].numpy().copy().view(np.float32).astype(np.float64)
    np.testing.assert_allclose(reported, np.maximum(step, 2.0**-126), rtol=1e-6)
    numbers = all_numbers(form)
    codes = codes_in(data, form[0])
    signed = numbers[codes % len(numbers)] * np.where(codes >= len(numbers), -1, 1)
    scaled = exact / reported
    above = np.searchsorted(numbers, np.abs(scaled)).clip(1, len(numbers) - 1)
    nearest = np.minimum(*(np.abs(np.abs(scaled) - numbers[near]) for near in (above - 1, above)))
    assert (np.abs(signed - scaled) <= nearest + 1e-6 * np.abs(scaled)).all()
    found = back(op, data, val, size, form).double().numpy()
    wanted = torch.from_numpy((signed * reported).astype(np.float32)).to(dtype).double().numpy()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_numbers_of_the_format_come_back_as_they_were(op: Any, form: tuple[int, int]) -> None:
    numbers = all_numbers(form)
    top = int((numbers <= FORMATS[form]).sum())
    # The largest of the group, by which its step is 1.
    numbers[top:] = FORMATS[form]
    val = torch.from_numpy(np.concatenate([numbers, -numbers])).float()
    data = quantized(op, val, len(val), form)
    codes = codes_in(data, form[0])[0]
    half = len(numbers)
    assert codes[:top].tolist() == list(range(top))
    assert codes[half : half + top].tolist() == [0, *range(half + 1, half + top)]  # -0 is 0
    found = back(op, data, val, len(val), form)
    assert torch.equal(found[:top], val[:top])
    assert torch.equal(found[half : half + top], val[half : half + top])


def test_ties_go_to_the_even_code(op: Any) -> None:
    numbers = all_numbers(E4M3)
    ties = torch.from_numpy((numbers[:-1] + numbers[1:]) / 2).float()
    val = torch.cat([torch.tensor([480.0]), ties])
    codes = quantized(op, val, 128)[0, 1:128].tolist()
    assert codes == [code + code % 2 for code in range(127)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_group_with_a_number_that_is_not_finite_is_not_finite(op: Any, bad: float) -> None:
    val = torch.linspace(-2, 2, 24, dtype=torch.bfloat16)
    val[9] = bad
    found = back(op, quantized(op, val, 8), val, 8).view(3, 8).isfinite()
    assert found.all(1).tolist() == [True, False, True]
    assert not found[1].any()


def test_zeros_and_tiny_numbers_stay_finite(op: Any) -> None:
    val = torch.zeros(3, 8, dtype=torch.bfloat16)
    val[1] = 1e-38
    val[2, 3] = 3e38
    found = back(op, quantized(op, val, 8), val, 8)
    assert found.isfinite().all()
    assert not found[0].any()
    assert (found[1].double() - val[1].double()).abs().max() < 1e-39


def test_stochastic_rounding_is_right_on_average(op: Any) -> None:
    val = torch.full((4, 4096), 1.03)
    val[:, 0] = 480.0
    torch.manual_seed(3)
    found = back(op, quantized(op, val, 4096, stochastic=1), val, 4096)[:, 1:]
    assert set(found.unique().tolist()) == {1.0, 1.125}
    assert abs(found.mean().item() - 1.03) < 0.002


def test_chosen_parts_are_those_of_the_whole(op: Any) -> None:
    val = torch.randn(6, 4, 32, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(1))
    data = quantized(op, val, 16)
    whole = back(op, data, val, 16)
    for kind in (torch.int32, torch.int64):
        indexes = torch.tensor([5, 0, 0, 3], dtype=kind)
        parts = torch.empty(4, 4, 32, dtype=torch.bfloat16)
        op.selective_dequantize(parts, data, indexes, 16, 3, 4)
        assert torch.equal(parts, whole[indexes.long()])


def test_scales_are_the_steps(op: Any) -> None:
    val = torch.randn(4, 16, generator=torch.Generator().manual_seed(2))
    _, scale = quantized(op, val, 16).split(16, dim=-1)
    np.testing.assert_allclose(
        op.get_scales(scale.contiguous(), 4).numpy(), val.abs().amax(1, keepdim=True).numpy() / 480, rtol=1e-6
    )


@pytest.mark.parametrize(("form", "size"), [((12, 7), 3), ((6, 2), 6), ((4, 1), 5)], ids=str)
def test_groups_that_are_not_whole_bytes_are_told(op: Any, form: tuple[int, int], size: int) -> None:
    with pytest.raises(InvalidOpArgument, match="groups of whole bytes"):
        quantized(op, torch.ones(2 * size), size, form)


@pytest.mark.parametrize(
    ("form", "data"),
    [
        # By hand: 1, -2, the largest number, and 0.
        ((12, 7), [0x80, 0x03, 0xC0, 0xFF, 0x07, 0x00]),
        ((6, 2), [0x0C, 0xFC, 0x01]),
        ((4, 1), [0xC2, 0x07]),
    ],
    ids=str,
)
def test_layout_is_a_stream_of_bits(op: Any, form: tuple[int, int], data: list[int]) -> None:
    val = torch.tensor([1.0, -2.0, FORMATS[form], 0.0])
    assert quantized(op, val, 4, form)[0, :-4].tolist() == data


def test_input_that_is_not_contiguous_is_read_in_its_order(op: Any) -> None:
    val = torch.randn(8, 6, generator=torch.Generator().manual_seed(4))
    assert torch.equal(quantized(op, val.t(), 12), quantized(op, val.t().contiguous(), 12))


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("shape", [(5, 5), (3, 11)])
def test_last_group_need_not_be_full(op: Any, shape: tuple[int, int], form: tuple[int, int]) -> None:
    """DeepSpeed's QuantizedParameter divides by 512, and would keep nothing of 25 numbers."""
    val = torch.randn(shape, generator=torch.Generator().manual_seed(5)).bfloat16()
    size, width = 16, 16 * form[0] // 8 + 4
    out = torch.ones(val.numel() // size, width, dtype=torch.uint8)
    codes = op.quantize(out, val, size, 0, *form)
    whole = torch.cat([val.flatten(), torch.zeros(-val.numel() % size).bfloat16()])
    expected = quantized(op, whole, size, form)
    assert torch.equal(codes, expected.flatten())
    assert torch.equal(
        back(op, codes, val, size, form), back(op, expected, whole, size, form)[: val.numel()].view(shape)
    )


def test_nothing_gives_nothing(op: Any) -> None:
    val = torch.empty(0, 16)
    assert back(op, quantized(op, val, 16), val, 16).shape == (0, 16)


@pytest.mark.parametrize("arguments", [(6, 3), (12, 5), (4, 2), (8, 4), (16, 10)])
def test_other_numbers_of_bits_are_told(op: Any, arguments: tuple[int, int]) -> None:
    with pytest.raises(InvalidOpArgument, match=f"{arguments[0]} bits, {arguments[1]} of them"):
        op.quantize(torch.ones(1, 20, dtype=torch.uint8), torch.ones(16), 16, 0, *arguments)


def test_arguments_that_do_not_fit_are_told(op: Any) -> None:
    out = torch.ones(1, 20, dtype=torch.uint8)
    for given, reported in (
        ((out, torch.ones(16), 0), "groups of 0"),
        ((out, torch.ones(16, dtype=torch.int8), 16), "torch.int8"),
        ((out.float(), torch.ones(16), 16), "out of torch.float32"),
        ((out[:, :16], torch.ones(16), 16), "out of shape (1, 16)"),
    ):
        with pytest.raises(InvalidOpArgument) as error:
            op.quantize(*given, 0, 8, 3)
        assert reported in str(error.value)
    with pytest.raises(InvalidOpArgument, match="whole groups for each index"):
        op.selective_dequantize(torch.ones(3, 16), out, torch.tensor([0, 0]), 16, 3, 4)
    with pytest.raises(InvalidOpArgument, match=r"torch\.float32 of shape"):
        op.get_scales(torch.ones(1, 4), 1)


def test_builder_tells_type_and_range() -> None:
    assert FPQuantizerBuilder.get_default_quant_dtype() == torch.uint8
    assert [FPQuantizerBuilder.get_quant_range(bits) for bits in (None, 8, 12, 6, 4)] == [
        480,
        480,
        510,
        28,
        6,
    ]
    with pytest.raises(InvalidOpArgument, match="5 bits"):
        FPQuantizerBuilder.get_quant_range(5)


def test_twelve_bits_are_e4m7_when_deepspeed_asks_for_a_mantissa_of_four(op: Any) -> None:
    val = torch.randn(4, 16, generator=torch.Generator().manual_seed(7))
    data = quantized(op, val, 16, (12, 4))
    assert torch.equal(data, quantized(op, val, 16, (12, 7)))
    assert torch.equal(back(op, data, val, 16, (12, 4)), back(op, data, val, 16, (12, 7)))


def test_codes_joined_with_the_scales_of_get_scales_are_read(op: Any) -> None:
    # DeepSpeed's matmul_fp8 without triton: torch.cat of bytes and float32 is float32.
    val = torch.randn(4, 16, generator=torch.Generator().manual_seed(8))
    data = quantized(op, val, 16)
    codes, steps = data[:, :-4], op.get_scales(data[:, -4:].contiguous(), 4)
    assert torch.equal(back(op, torch.cat([codes, steps], 1), val, 16), back(op, data, val, 16))
