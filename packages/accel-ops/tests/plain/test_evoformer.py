# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Evoformer's attention beside numpy in float64, forward and backward, over random sizes, biases and types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops import plain
from accel_ops.plain import EvoformerAttnBuilder

#: Largest error, as part of the largest number of the result.
PRECISION = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
NONE = torch.empty(0)


@pytest.fixture(scope="module")
def op() -> Any:
    return EvoformerAttnBuilder().load()


def drawn(draw: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(draw.standard_normal(shape)).to(dtype)


def reference(q: Any, k: Any, v: Any, bias1: Any, bias2: Any, grad: Any) -> tuple[Any, ...]:
    """Output, logarithm of the divisor, and gradients of q, k, v and both biases, by formulas in numpy."""
    scale = 1 / math.sqrt(q.shape[-1])
    scores = np.einsum("bnqhd,bnkhd->bnhqk", q, k) * scale + bias1 + bias2
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    lse = (np.log(weights.sum(-1, keepdims=True)) + top)[..., 0]
    weights /= weights.sum(-1, keepdims=True)
    out = np.einsum("bnhqk,bnkhd->bnqhd", weights, v)
    by_weight = np.einsum("bnqhd,bnkhd->bnhqk", grad, v)
    by_score = weights * (by_weight - (weights * by_weight).sum(-1, keepdims=True))
    return (
        out,
        lse,
        np.einsum("bnhqk,bnkhd->bnqhd", by_score, k) * scale,
        np.einsum("bnhqk,bnqhd->bnkhd", by_score, q) * scale,
        np.einsum("bnhqk,bnqhd->bnkhd", weights, grad),
        by_score.sum((2, 3), keepdims=True),
        by_score.sum(1, keepdims=True),
    )


def run(op: Any, q: Any, k: Any, v: Any, bias1: Any, bias2: Any, grad: Any, room: int = 0) -> tuple[Any, ...]:
    """What the op gives, as DeepSpeed's Python calls it."""
    rows, length, heads = math.prod(q.shape[:-3]), q.shape[-3], q.shape[-2]
    o, lse = torch.empty_like(q), torch.full((rows, heads, length + room), -1.0)
    op.attention(q, k, v, bias1, bias2, o, lse)
    grads = [torch.empty_like(q) for _ in range(3)]
    biases = [torch.zeros_like(bias, dtype=torch.float32) for bias in (bias1, bias2)]
    op.attention_bwd(grad, q, k, v, o, lse, torch.empty_like(lse), bias1, bias2, *grads, *biases)
    assert torch.isposinf(lse[:, :, length:]).all()
    return (o, lse[:, :, :length], *grads, *biases)


def near(found: torch.Tensor, wanted: Any, precision: float) -> None:
    error = np.abs(found.detach().double().numpy().reshape(wanted.shape) - wanted).max(initial=0)
    assert error <= precision * max(np.abs(wanted).max(initial=0), 1e-3)


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_results_and_gradients_are_those_of_float64(
    op: Any, seed: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(seed)
    batch, rows, length, heads, width = (int(draw.integers(1, top)) for top in (4, 6, 40, 5, 33))
    length += 1  # with one key alone the gradients of scores are 0, and what is found is rounding
    if seed % 3 == 0:
        monkeypatch.setattr(plain, "_SCORES", int(draw.integers(1, 4000)))  # a few rows at a time
    q, k, v, grad = (drawn(draw, batch, rows, length, heads, width, dtype=dtype) for _ in range(4))
    bias1 = drawn(draw, batch, rows, 1, 1, length, dtype=dtype) if seed % 2 else NONE.to(dtype)
    bias2 = drawn(draw, batch, 1, heads, length, length, dtype=dtype) if seed % 4 < 2 else NONE.to(dtype)
    found = run(op, q, k, v, bias1, bias2, grad, room=seed % 5)
    exact = [t.double().numpy() if t.numel() else 0.0 for t in (q, k, v, bias1, bias2, grad)]
    wanted = reference(*exact)
    for index, (mine, theirs) in enumerate(zip(found[:5], wanted[:5], strict=True)):
        near(mine, theirs, 1e-5 if index == 1 else PRECISION[dtype])
    for mine, theirs in zip(found[5:], wanted[5:], strict=True):
        if mine.numel():
            near(mine, theirs, PRECISION[dtype])


def test_gradients_of_biases_are_added(op: Any) -> None:
    draw = np.random.default_rng(50)
    q, k, v, grad = (drawn(draw, 2, 3, 4, 2, 8) for _ in range(4))
    bias1, bias2 = drawn(draw, 2, 3, 1, 1, 4), drawn(draw, 2, 1, 2, 4, 4)
    once = run(op, q, k, v, bias1, bias2, grad)[5:]
    o, lse = torch.empty_like(q), torch.empty(6, 2, 4)
    op.attention(q, k, v, bias1, bias2, o, lse)
    sums = [torch.ones_like(bias) for bias in (bias1, bias2)]
    grads = [torch.empty_like(q) for _ in range(3)]
    op.attention_bwd(grad, q, k, v, o, lse, torch.empty_like(lse), bias1, bias2, *grads, *sums)
    for total, each in zip(sums, once, strict=True):
        torch.testing.assert_close(total, each + 1)


def test_without_biases_leading_dimensions_are_any(op: Any) -> None:
    draw = np.random.default_rng(51)
    q, k, v, grad = (drawn(draw, 2, 2, 3, 6, 2, 8) for _ in range(4))
    found = run(op, q, k, v, NONE, NONE, grad)
    exact = [t.double().numpy().reshape(1, 12, 6, 2, 8) for t in (q, k, v)]
    wanted = reference(*exact, 0.0, 0.0, grad.double().numpy().reshape(1, 12, 6, 2, 8))
    for mine, theirs in zip(found[:5], wanted[:5], strict=True):
        near(mine.reshape(theirs.shape), theirs, 1e-5)


def test_gradient_that_is_not_contiguous_is_read_as_it_is(op: Any) -> None:
    draw = np.random.default_rng(52)
    q, k, v = (drawn(draw, 1, 2, 6, 2, 8) for _ in range(3))
    grad = drawn(draw, 8, 2, 6, 2, 1).permute(4, 1, 2, 3, 0)
    for mine, theirs in zip(
        run(op, q, k, v, NONE, NONE, grad), run(op, q, k, v, NONE, NONE, grad.contiguous()), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_number_that_is_not_finite_stays_visible_in_its_row_alone(op: Any) -> None:
    draw = np.random.default_rng(53)
    q, k, v = (drawn(draw, 1, 3, 20, 2, 8) for _ in range(3))
    v[0, 1, 4, 1, 2] = math.nan
    o, lse = torch.empty_like(q), torch.empty(3, 2, 20)
    op.attention(q, k, v, NONE, NONE, o, lse)
    # A column of the width is NaN for each query of the row; the softmax's weights are finite.
    assert o[0, 1].isfinite().all((0, 2)).tolist() == [True, False]
    assert not o[0, 1, :, 1, 2].isfinite().any()
    assert o[0, ::2].isfinite().all()


def test_masked_keys_have_no_weight(op: Any) -> None:
    draw = np.random.default_rng(54)
    q, k, v = (drawn(draw, 1, 1, 20, 1, 8) for _ in range(3))
    bias1 = torch.zeros(1, 1, 1, 1, 20)
    bias1[..., 10:] = -math.inf
    o, lse = torch.empty_like(q), torch.empty(1, 1, 20)
    op.attention(q, k, v, bias1, NONE, o, lse)
    before = o.clone()
    v[:, :, 10:] = 1e6
    op.attention(q, k, v, bias1, NONE, o, lse)
    torch.testing.assert_close(o, before)


@pytest.mark.parametrize("shape", [(0, 2, 5, 2, 4), (1, 2, 0, 2, 4), (1, 0, 5, 2, 4)], ids=str)
def test_nothing_gives_nothing(op: Any, shape: tuple[int, ...]) -> None:
    q = torch.empty(shape)
    assert run(op, q, q, q, NONE, NONE, q)[0].shape == shape


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"k": torch.zeros(1, 2, 6, 2, 4)}, "k of shape (1, 2, 6, 2, 4)"),
        ({"v": torch.zeros(1, 2, 5, 2, 4, dtype=torch.float16)}, "v of torch.float16"),
        ({"q": torch.zeros(1, 2, 5, 2, 4, dtype=torch.int32)}, "torch.int32"),
        ({"bias1": torch.zeros(1, 2, 1, 1, 6)}, "bias1 of shape (1, 2, 1, 1, 6)"),
        ({"bias2": torch.zeros(1, 1, 1, 5, 5)}, "bias2 of shape (1, 1, 1, 5, 5)"),
        ({"lse": torch.zeros(2, 2, 4)}, "lse of shape (2, 2, 4)"),
        ({"o": torch.zeros(1, 2, 5, 2, 3)}, "o of shape (1, 2, 5, 2, 3)"),
    ],
)
def test_tensors_that_do_not_fit_are_told(op: Any, change: dict[str, torch.Tensor], reported: str) -> None:
    q = torch.zeros(1, 2, 5, 2, 4)
    given = {
        "q": q,
        "k": q,
        "v": q,
        "bias1": NONE,
        "bias2": NONE,
        "o": q.clone(),
        "lse": torch.zeros(2, 2, 32),
    }
    with pytest.raises(InvalidOpArgument) as error:
        op.attention(*{**given, **change}.values())
    assert reported in str(error.value)
