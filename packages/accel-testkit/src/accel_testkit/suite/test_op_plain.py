# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op plain: the ops that DeepSpeed has for one device only compute what float64 does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, largest

pytestmark = pytest.mark.tier("device")


@pytest.mark.needs("EvoformerAttnBuilder")
def test_evoformer_s_attention_and_gradients(accelerator: DeepSpeedAccelerator) -> None:
    """`attention` and `attention_bwd` give what autograd gives in float64, also for both biases."""
    op, device = accelerator.create_op_builder("EvoformerAttnBuilder").load(), accelerator.device()
    shapes = [(2, 3, 32, 2, 8)] * 3 + [(2, 3, 1, 1, 32), (2, 1, 2, 32, 32)]
    exact = [_numbers(*shape).half().double().requires_grad_() for shape in shapes]
    q, k, v, bias1, bias2 = exact
    scores = torch.einsum("bnqhd,bnkhd->bnhqk", q, k) / math.sqrt(8) + bias1 + bias2
    wanted = torch.einsum("bnhqk,bnkhd->bnqhd", scores.softmax(-1), v)
    grad = _numbers(2, 3, 32, 2, 8).half()
    wanted.backward(grad.double())
    given = [tensor.detach().half().to(device) for tensor in exact]
    # Of no numbers yet: new memory may hold the right ones of an earlier call.
    out, lse = torch.full_like(given[0], torch.nan), torch.full((6, 2, 32), torch.nan, device=device)
    op.attention(*given, out, lse)
    grads = [torch.full_like(tensor, torch.nan) for tensor in given[:3]]
    biases = [torch.zeros_like(tensor, dtype=torch.float32) for tensor in given[3:]]
    arguments = (grad.to(device), *given[:3], out, lse, torch.empty_like(lse), *given[3:], *grads, *biases)
    op.attention_bwd(*arguments)
    found = [out, *grads, *biases]
    _expect_near(found, [wanted, *(tensor.grad for tensor in exact)], 1e-2, "evoformer_attn")


@pytest.mark.needs("RandomLTDBuilder")
def test_tokens_are_kept_and_put_back(accelerator: DeepSpeedAccelerator) -> None:
    """`token_gather` keeps the tokens of the indices, `token_scatter_` puts them back in place."""
    op, device = accelerator.create_op_builder("RandomLTDBuilder").load(), accelerator.device()
    rows, index = _numbers(3, 9, 8), torch.tensor([[0, 4, 8], [1, 2, 3], [5, 6, 7]], dtype=torch.int32)
    places = index.long().unsqueeze(-1).expand(-1, -1, 8)
    for batch_first in (True, False):
        given = rows if batch_first else rows.transpose(0, 1)
        kept = op.token_gather(given.contiguous().to(device), index.to(device), batch_first)
        wanted = rows.gather(1, places)
        _expect_near([kept], [wanted if batch_first else wanted.transpose(0, 1)], 0, "token_gather")
        put = given.contiguous().to(device, copy=True)
        result = op.token_scatter_(put, torch.zeros_like(kept), index.to(device), batch_first)
        wanted = rows.scatter(1, places, 0.0)
        wanted = wanted if batch_first else wanted.transpose(0, 1)
        _expect_near([put, result], [wanted] * 2, 0, "token_scatter_")
        # The gradient of a sum has one element in memory.
        result = op.token_scatter_(
            torch.ones(1, device=device).expand(put.shape), kept, index.to(device), batch_first
        )
        wanted = torch.ones(3, 9, 8).scatter(1, places, rows.gather(1, places))
        _expect_near([result], [wanted if batch_first else wanted.transpose(0, 1)], 0, "token_scatter_")
    ids = index.flip(-1).unsqueeze(0).contiguous().to(device)
    _expect_near([op.token_sort_(ids, 9), ids], [index.unsqueeze(0)] * 2, 0, "token_sort_")
    mask = _numbers(3, 1, 9, 9)
    found = op.mask_gather_bert(mask.to(device), index.unsqueeze(0).to(device))
    wanted = torch.stack([mask[row, :, each][:, :, each] for row, each in enumerate(index.long())])
    _expect_near([found], [wanted.unsqueeze(0)], 0, "mask_gather_bert")


@pytest.mark.needs("SpatialInferenceBuilder")
def test_biases_are_those_of_channels(accelerator: DeepSpeedAccelerator) -> None:
    """The three sums of `spatial_inference` add a bias to each channel of an image whose channels come last."""
    op, device = accelerator.create_op_builder("SpatialInferenceBuilder").load(), accelerator.device()
    image, other = (_numbers(2, 8, 3, 5).half().to(memory_format=torch.channels_last) for _ in range(2))
    bias, other_bias = _numbers(8).half(), 2 * _numbers(8).half()
    x, y, b, c = (tensor.to(device) for tensor in (image, other, bias, other_bias))
    found = [op.nhwc_bias_add(x, b), op.nhwc_bias_add_add(x, b, y), op.nhwc_bias_add_bias_add(x, b, y, c)]
    first = image.double() + bias.double().view(-1, 1, 1)
    second = first + other.double()
    wanted = [first, second, second + other_bias.double().view(-1, 1, 1)]
    _expect_near(found, wanted, 2e-3, "spatial_inference")
    tokens = _numbers(2, 5, 8).half()
    found = [op.nhwc_bias_add(tokens.to(device), b)]
    _expect_near(found, [tokens.double() + bias.double()], 2e-3, "spatial_inference of tokens")
    tokens = _numbers(2, 8, 8).half()  # as many as channels: the last dimension is the channels'
    found = [op.nhwc_bias_add(tokens.to(device), b)]
    _expect_near(
        found, [tokens.double() + bias.double()], 2e-3, "spatial_inference of as many tokens as channels"
    )


@pytest.mark.needs("FPQuantizerBuilder")
@pytest.mark.parametrize(("bits", "mantissa"), [(8, 3), (8, 2), (12, 4), (6, 2), (4, 1)])
def test_numbers_with_an_exponent_come_back(
    accelerator: DeepSpeedAccelerator, bits: int, mantissa: int
) -> None:
    """A number comes back within half of its last place, the largest exactly, and chosen parts are the whole's."""
    op, device = accelerator.create_op_builder("FPQuantizerBuilder").load(), accelerator.device()
    exponent, width = bits - mantissa - 1, 256 * bits // 8 + 4
    val = (_numbers(4, 512) * torch.tensor([1e-3, 1.0, 30.0, 1e4]).view(-1, 1)).to(device)
    data = torch.ones(8, width, dtype=torch.uint8, device=device)
    data, back = op.quantize(data, val, 256, 0, bits, mantissa), torch.full_like(val, torch.nan)
    op.dequantize(back, data, 256, mantissa, exponent)
    groups, exact = back.cpu().double().view(8, 256), val.cpu().double().view(8, 256)
    largest_of = exact.abs().amax(1, keepdim=True)
    steps = data[:, -4:].cpu().clone().view(torch.float32)
    _expect_near([op.get_scales(data[:, -4:].clone(), 8)], [steps], 0, "get_scales")
    # Half of the last place, or of the smallest number, which is a step times a power of two.
    bias = (1 << (exponent - 1)) - 1
    allowed = exact.abs() * (2.0 ** -(mantissa + 1) + 1e-6) + steps.double() * 2.0 ** (-bias - mantissa + 1)
    apart = ((groups - exact).abs() / allowed).max().item()
    ends = ((groups.abs().amax(1, keepdim=True) - largest_of).abs() / largest_of).max().item()
    zero = op.quantize(torch.ones_like(data), torch.zeros_like(val), 256, 0, bits, mantissa)
    op.dequantize(back, zero, 256, mantissa, exponent)
    expect(
        apart <= 1 and ends < (4e-3 if bits == 12 else 1e-6) and not back.any(),
        f"fp_quantizer is further from the numbers than {bits} bits are",
        found=f"{apart:g} times half of the last place, the largest {ends:g} apart",
        expected="at most once, 0 (with 12 bits 0.4 %), and zeros of zeros",
        do=f"round to the nearest number of a mantissa of {mantissa} bits, by a step for the largest number",
    )
    op.dequantize(back, data, 256, mantissa, exponent)
    parts = torch.full((2, 512), torch.nan, device=device)
    chosen = torch.tensor([2, 0], dtype=torch.int32, device=device)
    op.selective_dequantize(parts, data, chosen, 256, mantissa, exponent)
    _expect_near([parts], [back[[2, 0]]], 0, "selective_dequantize")


@pytest.mark.needs("PackbitsBuilder")
def test_signs_are_bits(accelerator: DeepSpeedAccelerator) -> None:
    """`packbits` has the first sign in the highest bit, and `unpackbits` gives 1 and -1."""
    op, device = accelerator.create_op_builder("PackbitsBuilder").load(), accelerator.device()
    numbers = _numbers(19)
    signs = torch.ones(24).masked_fill_(torch.cat([numbers, -torch.ones(5)]) < 0, -1)
    packed = op.packbits(numbers.to(device), 19, 0)
    bits = (signs > 0).long().view(3, 8) * 2 ** torch.arange(7, -1, -1)
    _expect_near([packed, op.unpackbits(packed, 3, 0)], [bits.sum(1), signs], 0, "pack_bits")


_generator = torch.Generator()


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    # Whatever checks ran before, in this run or in an earlier one of the process.
    _generator.manual_seed(61)


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_generator)


def _expect_near(found: list[torch.Tensor], wanted: list[Any], precision: float, what: str) -> None:
    """Compare within a part of the largest number that is wanted."""
    apart = largest(
        (mine.detach().cpu().double() - theirs.detach().cpu().double()).abs().max().item()
        / max(1.0, theirs.detach().abs().max().item())
        for mine, theirs in zip(found, wanted, strict=True)
    )
    expect(
        apart <= precision and all(a.shape == b.shape for a, b in zip(found, wanted, strict=True)),
        f"{what} computes something else than float64",
        found=f"off by {apart:g} of the largest number, shapes {[tuple(each.shape) for each in found]}",
        expected=f"at most {precision:g}, shapes {[tuple(each.shape) for each in wanted]}",
        do="compare each function with that of accel_ops.plain",
    )
