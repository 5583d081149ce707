# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops in plain torch are right: what the conformance suite leaves out, which tests/vendors runs on the CPU.

The suite has the definitions in float64, forms of every argument, what has to be refused.
"""

import math
from typing import Any

import pytest
import torch

from accel_core.errors import FunctionNotImplemented, InvalidOpArgument
from accel_ops import torch_fallbacks
from accel_ops.inference import CoreFunctions, TransformerFunctions
from accel_ops.quantizers.fp_quantizer import FPQuantizerBuilder
from accel_ops.quantizers.quantizer import QuantizerBuilder

NONE = torch.empty(0)


# --- evoformer, tokens, sums and signs


def attention(q: Any, k: Any, v: Any, bias1: Any = NONE) -> torch.Tensor:
    out, lse = torch.empty_like(q), torch.empty(math.prod(q.shape[:-3]), q.shape[-2], q.shape[-3])
    torch_fallbacks.EvoformerAttnBuilder().load().attention(q, k, v, bias1, NONE, out, lse)
    return out


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(53))


def test_number_that_is_not_finite_stays_visible_in_its_row_alone():
    q, k, v = drawn(3, 1, 3, 20, 2, 8)
    v[0, 1, 4, 1, 2] = math.nan
    out = attention(q, k, v)
    # A column of the width is NaN for each query of the row; the softmax's weights are finite.
    assert out[0, 1].isfinite().all((0, 2)).tolist() == [True, False]
    assert not out[0, 1, :, 1, 2].isfinite().any()
    assert out[0, ::2].isfinite().all()


def test_tokens_sums_and_numbers_of_nothing_are_nothing():
    op, none = torch_fallbacks.RandomLTDBuilder().load(), torch.empty(2, 0, dtype=torch.int32)
    assert op.token_gather(torch.ones(2, 3, 4), none, True).shape == (2, 0, 4)
    assert op.token_scatter_(torch.ones(2, 3, 4), torch.ones(2, 0, 4), none, True).all()
    assert op.mask_gather_bert(torch.ones(2, 1, 3, 3), none.view(1, 2, 0)).shape == (1, 2, 1, 0, 0)
    sums = torch_fallbacks.SpatialInferenceBuilder().load()
    assert sums.nhwc_bias_add(torch.empty(0, 4, 3), torch.ones(3)).shape == (0, 4, 3)
    val = torch.empty(0, 16)
    assert back(quantized(val, 16), val, 16).shape == (0, 16)


def test_overflow_of_a_sum_is_seen():
    op = torch_fallbacks.SpatialInferenceBuilder().load()
    x, bias = torch.full((1, 2, 1), 6e4, dtype=torch.float16), torch.full((1,), 6e4, dtype=torch.float16)
    assert op.nhwc_bias_add(x, bias).isinf().all()
    x[0, 0] = math.nan
    assert op.nhwc_bias_add_add(x, -bias, x).isnan().flatten().tolist() == [True, False]


# --- numbers of few bits


def quantized(val: torch.Tensor, size: int, bits: int = 8, mantissa: int = 3) -> torch.Tensor:
    out = torch.ones(val.numel() // size, size * bits // 8 + 4, dtype=torch.uint8)
    found: torch.Tensor = FPQuantizerBuilder().load().quantize(out, val, size, 0, bits, mantissa)
    return found


def back(data: torch.Tensor, val: torch.Tensor, size: int, bits: int = 8, mantissa: int = 3) -> torch.Tensor:
    made = torch.empty_like(val)
    FPQuantizerBuilder().load().dequantize(made, data, size, mantissa, bits - mantissa - 1)
    return made


@pytest.mark.parametrize("form", [(8, 3), (8, 2), (12, 7), (6, 2), (4, 1)], ids=str)
@pytest.mark.parametrize("shape", [(5, 5), (3, 11)])
def test_last_group_need_not_be_full(shape, form):
    """DeepSpeed's QuantizedParameter divides by 512, and would keep nothing of 25 numbers."""
    val = drawn(*shape).bfloat16()
    out = torch.ones(val.numel() // 16, 16 * form[0] // 8 + 4, dtype=torch.uint8)
    codes = FPQuantizerBuilder().load().quantize(out, val, 16, 0, *form)
    whole = torch.cat([val.flatten(), torch.zeros(-val.numel() % 16).bfloat16()])
    expected = quantized(whole, 16, *form)
    assert torch.equal(codes, expected.flatten())
    assert torch.equal(
        back(codes, val, 16, *form), back(expected, whole, 16, *form)[: val.numel()].view(shape)
    )


def test_codes_joined_with_the_scales_of_get_scales_are_read():
    # DeepSpeed's matmul_fp8 without triton: torch.cat of bytes and float32 is float32.
    val = drawn(4, 16)
    data = quantized(val, 16)
    codes, steps = data[:, :-4], FPQuantizerBuilder().load().get_scales(data[:, -4:].contiguous(), 4)
    assert torch.equal(back(torch.cat([codes, steps], 1), val, 16), back(data, val, 16))


@pytest.mark.parametrize("name", ["ds_quantize_fp32", "ds_sr_quantize_asym_fp32"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_fake_quantization_keeps_overflow_in_its_group(name, bad):
    values = torch.ones(2, 8)
    values[1, 3] = bad
    getattr(QuantizerBuilder().load(), name)(values, 2, 8)
    assert values[0].isfinite().all()
    assert not values[1].isfinite().any()


def test_halves_are_rounded_to_even():
    rows = torch.tensor([[128.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0]])
    assert QuantizerBuilder().load().quantize(rows, 1, 8, 0)[0].tolist() == [[127, 0, 2, 2, 0, -2, -2, 0]]


# --- inference


@pytest.mark.parametrize(("rotary", "heads"), [(16, 4), (3, 4), (0, 4), (8, 3), (8, 0), (-2, 4)])
def test_rotary_channels_that_a_head_does_not_have_are_an_error(rotary, heads):
    x = torch.randn(1, 2, 32)
    with pytest.raises(InvalidOpArgument, match="ACC-504"):
        TransformerFunctions().apply_rotary_pos_emb(x, x, rotary, 0, heads, True, 1e4)


def test_flat_queries_and_keys_are_rotated_as_those_of_heads():
    op, query, key = TransformerFunctions(), torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8)
    heads_first = op.apply_rotary_pos_emb(query.transpose(1, 2), key.transpose(1, 2), 4, 3, 4, True, 1e4)
    flat = op.apply_rotary_pos_emb(query.flatten(2), key.flatten(2), 4, 3, 4, True, 1e4)
    for one, other in zip(heads_first, flat, strict=True):
        assert torch.equal(other.view(one.transpose(1, 2).shape), one.transpose(1, 2))


def test_weights_of_eight_bits_are_multiplied_by_the_scales_of_their_groups():
    weight = torch.tensor([[1, -2, 3], [4, 5, -128]], dtype=torch.int8)
    found = TransformerFunctions().dequantize_fp16(weight, torch.tensor([[0.5], [2.0]]), 2)
    assert found.dtype == torch.float16
    assert found.tolist() == [[0.5, -1.0, 1.5], [8.0, 10.0, -256.0]]


def test_a_function_that_is_missing_is_named_with_those_there_are():
    with pytest.raises(FunctionNotImplemented, match="cuda_wf6af16_linear") as caught:
        CoreFunctions().cuda_wf6af16_linear()
    assert isinstance(caught.value, AttributeError)
    assert "gated_activation, " in str(caught.value)
    assert not hasattr(CoreFunctions(), "preprocess_weight")
    assert not hasattr(QuantizerBuilder().load(), "swizzle_dequant")


@pytest.mark.parametrize(("batch", "dtype"), [(1, torch.float32), (2, torch.bfloat16)])
def test_tokens_of_other_sequences_do_not_follow_in_a_cache(batch, dtype):
    op = TransformerFunctions()

    def attend(batch, tokens, dtype, prompt):
        rows = torch.ones(batch, tokens, 3 * 8, dtype=dtype)
        op.softmax_context(
            rows, NONE, 0, False, False, 2, 2, 0.5, True, False, 0, True, 0, 1, NONE, 1e4, prompt
        )

    attend(2, 4, torch.float32, True)
    with pytest.raises(InvalidOpArgument, match="4 tokens of"):
        attend(batch, 1, dtype, False)
    attend(batch, 4, dtype, True)
    attend(batch, 1, dtype, False)
