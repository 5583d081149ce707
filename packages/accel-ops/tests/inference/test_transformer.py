# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The functions of transformer_inference against attention written out in float64, prompt and tokens after it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
import torch

from accel_core.errors import FunctionNotImplemented, InvalidOpArgument
from accel_ops.inference import TransformerFunctions

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
NONE = torch.empty(1)


@dataclass
class Case:
    """One attention layer. rotary: channels that turn; halves: which of the two pairings."""

    batch: int
    heads: int
    groups: int
    width: int
    prompt: int
    rotary: int
    halves: bool
    causal: bool
    window: int
    padded: bool
    alibi: bool

    @classmethod
    def drawn(cls, at: random.Random) -> Case:
        groups = at.choice([1, 2])
        return cls(
            batch=at.randint(1, 3), heads=groups * at.choice([1, 2, 3]), groups=groups, width=8,
            prompt=at.randint(2, 6), rotary=at.choice([0, 4, 8]), halves=at.random() < 0.5,
            causal=at.random() < 0.8, window=at.choice([0, 0, 3]), padded=at.random() < 0.4,
            alibi=at.random() < 0.3,
        )  # fmt: skip


def turned(x: torch.Tensor, case: Case) -> torch.Tensor:
    """Every pair of channels as a complex number, turned by position times frequency."""
    if not case.rotary:
        return x
    pairs, rest = x[..., : case.rotary], x[..., case.rotary :]
    shape = (2, -1) if case.halves else (-1, 2)
    pairs = pairs.unflatten(-1, shape)
    pairs = pairs.transpose(-1, -2) if case.halves else pairs
    position = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None]
    frequency = 10000.0 ** (-torch.arange(0, case.rotary, 2, dtype=torch.float64) / case.rotary)
    angle = torch.polar(torch.ones_like(position * frequency), position * frequency)
    out = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * angle)
    out = out.transpose(-1, -2) if case.halves else out
    return torch.cat((out.flatten(-2), rest), dim=-1)


def reference(qkv: torch.Tensor, case: Case, mask: torch.Tensor, alibi: torch.Tensor) -> torch.Tensor:
    """The last rows of attention over the whole sequence, (batch, tokens, heads times width)."""
    rows = qkv.double().unflatten(-1, (case.heads + 2 * case.groups, case.width))
    q, k, v = rows.split([case.heads, case.groups, case.groups], dim=2)
    q, k = turned(q, case), turned(k, case)
    times = case.heads // case.groups
    k, v = (t.repeat_interleave(times, dim=2) for t in (k, v))
    scores = torch.einsum("bqhw,bkhw->bhqk", q, k) / math.sqrt(case.width)
    tokens = qkv.shape[1]
    at = torch.arange(tokens)
    if alibi.dim() > 1:
        scores = scores + alibi.double().view(case.batch, case.heads, 1, -1)[..., :tokens]
    hidden = torch.zeros(tokens, tokens, dtype=torch.bool)
    if case.causal:
        hidden |= at > at[:, None]
    if case.window:
        hidden |= at <= at[:, None] - case.window
    scores = scores.masked_fill(hidden, -1e30)
    if mask.dim() > 1:
        scores = scores.masked_fill((mask < 0)[:, None, None, :tokens], -1e30)
    return torch.einsum("bhqk,bkhw->bqhw", scores.softmax(-1), v).flatten(2)


def call(functions: TransformerFunctions, qkv: torch.Tensor, case: Case, mask, alibi, kind: str):  # type: ignore[no-untyped-def]
    """The call that DeepSpeed's SoftmaxContextOp makes."""
    return getattr(functions, f"softmax_context_{kind}")(
        qkv, mask, case.rotary or -1, case.halves, not case.halves, case.heads, case.groups,
        case.width**-0.25, case.causal, bool(case.window), case.window, mask.dim() == 1, 0, 1, alibi, 10000,
        qkv.shape[1] > 1, None, None,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_prompt_and_later_tokens_attend_as_one_sequence(dtype: torch.dtype) -> None:
    at = random.Random(str(dtype))
    torch.manual_seed(5)
    for _ in range(40):
        case = Case.drawn(at)
        total = case.prompt + (3 if case.causal else 0)
        qkv = torch.randn(case.batch, total, (case.heads + 2 * case.groups) * case.width).to(dtype)
        mask, alibi = NONE, NONE
        if case.padded:  # the first token is padding; every query still sees itself
            mask = torch.zeros(case.batch, total, dtype=dtype)
            mask[:, 0] = -10000.0
        if case.alibi:
            alibi = torch.randn(case.batch * case.heads, 1, total).to(dtype)
        wanted = reference(qkv, case, mask, alibi)
        functions = TransformerFunctions()
        kind = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
        for start, end in [(0, case.prompt), *((n, n + 1) for n in range(case.prompt, total))]:
            known = mask[:, :end] if mask.dim() > 1 else mask
            heard = alibi[..., :end] if alibi.dim() > 1 else alibi
            found, keys, values = call(functions, qkv[:, start:end], case, known, heard, kind)
            rows = slice(start + (1 if case.padded and start == 0 else 0), end)  # a padded query is nobody's
            error = (found.double()[:, rows.start - start :] - wanted[:, rows]).abs().max()
            assert error < TOLERANCE[dtype], case
            assert keys.shape == values.shape == (case.batch, case.groups, end, case.width)


def prompt(functions: TransformerFunctions, tokens: int = 3, batch: int = 2) -> torch.Tensor:
    case = Case(batch, 2, 2, 8, tokens, 0, True, True, 0, False, False)
    found: torch.Tensor = call(functions, torch.randn(batch, tokens, 48), case, NONE, NONE, "fp32")[1]
    return found


def test_a_prompt_forgets_the_sequence_before() -> None:
    functions = TransformerFunctions()
    assert prompt(functions, 5).shape[2] == 5
    assert prompt(functions, 3).shape[2] == 3
    assert prompt(functions, 4, batch=1).shape == (1, 2, 4, 8)


def test_a_prompt_of_one_token_starts_anew_after_reset_cache() -> None:
    functions = TransformerFunctions()
    prompt(functions, 5)
    functions.reset_cache()
    assert prompt(functions, 1).shape[2] == 1


def test_positions_of_the_model_overrule_counted_ones() -> None:
    case = Case(1, 2, 2, 8, 3, 8, True, False, 0, False, False)
    qkv = torch.randn(1, 3, 48)
    shifted, plain = (
        TransformerFunctions().softmax_context(
            qkv,
            NONE,
            8,
            True,
            False,
            2,
            2,
            8**-0.25,
            False,
            False,
            0,
            True,
            0,
            1,
            NONE,
            10000,
            True,
            None,
            ids,
        )
        for ids in (torch.tensor([[4, 5, 6]]), None)
    )
    assert not torch.allclose(shifted[1], plain[1])
    # Attention depends on differences of positions only.
    assert torch.allclose(shifted[0], plain[0], atol=1e-5)
    assert torch.allclose(plain[0].double(), reference(qkv, case, NONE, NONE), atol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("rotary", [8, 4])
def test_queries_and_keys_are_rotated_by_position_in_both_layouts(dtype: torch.dtype, rotary: int) -> None:
    torch.manual_seed(6)
    op, offset = TransformerFunctions(), 3
    query, key = torch.randn(2, 5, 4, 8).to(dtype), torch.randn(2, 5, 2, 8).to(dtype)
    case = Case(2, 4, 2, 8, 5, rotary, halves=True, causal=True, window=0, padded=False, alibi=False)
    padded = [torch.cat([x.new_zeros(2, offset, *x.shape[2:]), x], dim=1).double() for x in (query, key)]
    wanted = [turned(x, case)[:, offset:] for x in padded]
    heads_first = op.apply_rotary_pos_emb(
        query.transpose(1, 2), key.transpose(1, 2), rotary, offset, 4, True, 1e4
    )
    flat = op.apply_rotary_pos_emb(query.flatten(2), key.flatten(2), rotary, offset, 4, True, 1e4)
    for exact, one, other in zip(wanted, heads_first, flat, strict=True):
        assert one.dtype == other.dtype == dtype
        torch.testing.assert_close(one.transpose(1, 2).double(), exact, atol=TOLERANCE[dtype], rtol=0)
        assert torch.equal(other.view(one.transpose(1, 2).shape), one.transpose(1, 2))


@pytest.mark.parametrize(("rotary", "heads"), [(16, 4), (3, 4), (0, 4), (8, 3), (8, 0), (-2, 4)])
def test_rotary_channels_that_a_head_does_not_have_are_an_error(rotary: int, heads: int) -> None:
    x = torch.randn(1, 2, 32)
    with pytest.raises(InvalidOpArgument, match="ACC-510"):
        TransformerFunctions().apply_rotary_pos_emb(x, x, rotary, 0, heads, True, 1e4)


def test_weights_of_eight_bits_are_multiplied_by_the_scales_of_their_groups() -> None:
    weight = torch.tensor([[1, -2, 3], [4, 5, -128]], dtype=torch.int8)
    found = TransformerFunctions().dequantize_fp16(weight, torch.tensor([[0.5], [2.0]]), 2)
    assert found.dtype == torch.float16
    assert found.tolist() == [[0.5, -1.0, 1.5], [8.0, 10.0, -256.0]]


def test_sequences_of_a_prompt_can_be_repeated() -> None:
    functions = TransformerFunctions()
    keys = prompt(functions, 3, batch=2)
    repeated = functions.repeat_kv_cache_fp32(2, 2)
    assert len(repeated) == 2
    assert torch.equal(repeated[0], keys.repeat_interleave(2, dim=0))
    assert prompt(functions, 1, batch=4).shape == (4, 2, 4, 8)
    with pytest.raises(RuntimeError, match="after a prompt only"):
        functions._caches[7].repeat(1, 2)


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("after", [True, False])
def test_perceptron(transposed: bool, kind: int, after: bool) -> None:
    torch.manual_seed(1)
    x, residual = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    first, second = torch.randn(16, 8), torch.randn(8, 16)  # (out, in)
    input_bias, gamma, beta, bias = torch.randn(8), torch.randn(8), torch.randn(8), torch.randn(16)
    weights = [w if transposed else w.T.contiguous() for w in (first, second)]
    output, norm = TransformerFunctions().mlp_gemm_fp32(
        x, residual, input_bias, *weights, bias, gamma, beta, 1e-5, True, after, NONE, NONE, False, kind,
        transposed,
    )  # fmt: skip
    start = (x + residual + input_bias if after else x).double()
    wanted = torch.nn.functional.layer_norm(start, (8,), gamma.double(), beta.double(), 1e-5)
    assert torch.allclose(norm.double(), wanted, atol=1e-5)
    hidden = wanted @ first.double().T + bias
    hidden = hidden.relu() if kind == 2 else torch.nn.functional.gelu(hidden, approximate="tanh")
    assert torch.allclose(output.double(), hidden @ second.double().T, atol=1e-4)


@pytest.mark.parametrize("transposed", [True, False])
def test_products_with_and_without_norm(transposed: bool) -> None:
    x, gamma, weight, bias = torch.randn(2, 3, 8), torch.rand(8), torch.randn(12, 8), torch.randn(12)
    given = weight if transposed else weight.T.contiguous()
    functions = TransformerFunctions()
    output, norm = functions.rms_qkv_gemm_fp32(x, given, NONE, gamma, 1e-5, False, transposed)
    wanted = torch.nn.functional.rms_norm(x.double(), (8,), gamma.double(), 1e-5)
    assert torch.allclose(norm.double(), wanted, atol=1e-5)
    assert torch.allclose(output.double(), wanted @ weight.double().T, atol=1e-4)
    found = functions.linear_layer_fp32(x, given, bias, True, False, 2, transposed, 10000)
    assert torch.allclose(found, x @ weight.T + bias, atol=1e-5)


def test_pre_rms_norm_gives_the_sum_too() -> None:
    x, residual, gamma = torch.randn(2, 8), torch.randn(2, 8), torch.rand(8)
    norm, total = TransformerFunctions().pre_rms_norm(x, residual, gamma, 1e-5)
    assert torch.equal(total, x + residual)
    assert torch.allclose(norm, torch.nn.functional.rms_norm(total, (8,), gamma, 1e-5), atol=1e-5)


def test_int8_weights_are_refused() -> None:
    with pytest.raises(FunctionNotImplemented, match="int8"):
        TransformerFunctions().rms_qkv_gemm_fp16(NONE, NONE, NONE, NONE, 1e-5, True, False)


@pytest.mark.parametrize("name", ["bias_gelu_fp32", "softmax_context_int8", "no_such_fp16", "layer_norm"])
def test_what_is_missing_is_an_attribute_error_that_deepspeed_takes_for_use_torch(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(TransformerFunctions(), name)
