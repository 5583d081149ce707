# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam over pieces of a parameter: the bits of torch's step, and what a caller finds after it."""

import copy
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from accel_zero.adam_pieces import _divisible, in_pieces

_SIZE = 1003


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("accel_zero.adam_pieces.PIECE", 64)
    monkeypatch.setattr("accel_zero.adam_pieces.LARGE", 1000)


def _pair(kind: Any, dtype: torch.dtype = torch.float32, **options: Any) -> list[Any]:
    """Return two optimizers of the same parameters: a large one, a small one and one without a gradient."""
    base = [torch.randn(size, dtype=dtype) for size in (_SIZE, 10, _SIZE)]
    return [kind([torch.nn.Parameter(each.clone()) for each in base], lr=1e-2, **options) for _ in range(2)]


def _train(stock: Any, ours: Any, steps: int = 5) -> list[int]:
    """Step both with the same gradients; return the number of parameters that each of our steps saw."""
    seen: list[int] = []
    step = ours.step

    def stepped() -> None:  # as a scheduler of the learning rate wraps it
        seen.append(len(ours.param_groups[0]["params"]))
        step()

    ours.step = stepped
    for _ in range(steps):
        for mine, theirs in zip(*(each.param_groups[0]["params"][:2] for each in (ours, stock)), strict=True):
            theirs.grad = (torch.randn(theirs.shape) * torch.randn(theirs.shape).exp()).to(theirs.dtype)
            mine.grad = theirs.grad.clone()
        stock.step()
        with in_pieces(ours, ours.param_groups[0]):
            ours.step()
    return seen


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"maximize": True, "betas": (0.5, 0.9)}),
        (torch.optim.AdamW, {"foreach": False, "fused": False}),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_step_in_pieces_has_torchs_bits(kind, options, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    stock, ours = _pair(kind, **options)
    before = [*ours.param_groups[0]["params"]]
    number = -(-_SIZE // (64 * threads)) + 2
    assert _train(stock, ours) == [3, *[number] * 4]
    assert all(mine is kept for mine, kept in zip(ours.param_groups[0]["params"], before, strict=True))
    assert len(ours.state) == len(stock.state) == 2
    for found, wanted in zip(
        ours.state_dict()["state"].values(), stock.state_dict()["state"].values(), strict=True
    ):
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    for mine, theirs in zip(before, stock.param_groups[0]["params"], strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (type("Mine", (torch.optim.Adam,), {}), {}),
        (torch.optim.Adam, {"foreach": True}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.Adam, {"dtype": torch.float16}),
        (torch.optim.Adam, {"dtype": torch.bfloat16}),
    ],
)
def test_other_steps_stay_whole(kind, options):
    stock, ours = _pair(kind, **options)
    assert set(_train(stock, ours)) == {3}


def test_steps_with_hooks_stay_whole():
    stock, ours = _pair(torch.optim.Adam)
    ours.register_step_pre_hook(lambda *_: None)
    assert set(_train(stock, ours)) == {3}
    stock, ours = _pair(torch.optim.Adam)
    handle = register_optimizer_step_post_hook(lambda *_: None)
    try:
        assert set(_train(stock, ours)) == {3}
    finally:
        handle.remove()


def test_step_that_fails_leaves_the_optimizer_whole():
    _, ours = _pair(torch.optim.Adam)
    _train(copy.deepcopy(ours), ours, steps=2)
    params, count = ours.param_groups[0]["params"], len(ours.state)
    ours.step = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError), in_pieces(ours, ours.param_groups[0]):
        ours.step()
    assert ours.param_groups[0]["params"] is params
    assert len(ours.state) == count
    assert ours.state[params[0]]["step"].item() == 2


def test_matrices_and_views_with_gaps_stay_whole():
    _, ours = _pair(torch.optim.Adam)
    matrix = torch.nn.Parameter(torch.randn(100, 20))
    gaps = torch.randn(_SIZE, 2)[:, 0].detach().requires_grad_()
    for param in (matrix, gaps):
        param.grad = torch.ones_like(param)
        ours.state[param] = {"step": torch.tensor(1.0), "exp_avg": torch.zeros_like(param)}
        assert not _divisible(ours, {}, param)
