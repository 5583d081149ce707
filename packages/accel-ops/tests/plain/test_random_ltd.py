# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tokens that are kept and put back, beside numpy, over random sizes, orders of dimensions and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.plain import RandomLTDBuilder

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


@pytest.fixture(scope="module")
def op() -> Any:
    return RandomLTDBuilder().load()


def drawn(seed: int) -> tuple[Any, int, int, int, int]:
    draw = np.random.default_rng(seed)
    batch, length, channels = (int(draw.integers(1, top)) for top in (5, 20, 9))
    return draw, batch, length, channels, int(draw.integers(1, length + 1))


def kept_tokens(draw: Any, batch: int, length: int, kept: int) -> torch.Tensor:
    rows = [np.sort(draw.permutation(length)[:kept]) for _ in range(batch)]
    return torch.tensor(np.array(rows), dtype=torch.int32)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_tokens_are_gathered_and_scattered(op: Any, seed: int, batch_first: bool) -> None:
    draw, batch, length, channels, kept = drawn(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    rows = draw.integers(-99, 99, (batch, length, channels))
    index = kept_tokens(draw, batch, length, kept)

    def given(array: Any) -> torch.Tensor:
        return torch.tensor(array if batch_first else array.swapaxes(0, 1).copy()).to(dtype)

    chosen = np.take_along_axis(rows, index.numpy()[..., None], 1)
    found = op.token_gather(given(rows), index, batch_first)
    assert found.is_contiguous()
    assert torch.equal(found, given(chosen))
    activations, new = given(rows), draw.integers(-99, 99, chosen.shape)
    assert op.token_scatter_(activations, given(new), index, batch_first) is activations
    np.put_along_axis(rows, index.numpy()[..., None], new, 1)
    assert torch.equal(activations, given(rows))


def test_input_that_is_not_contiguous_is_read_and_written_as_it_is(op: Any) -> None:
    rows = torch.arange(24.0).view(4, 3, 2).permute(1, 0, 2)
    index = torch.tensor([[0, 3]] * 3, dtype=torch.int32)
    assert torch.equal(op.token_gather(rows, index, True), rows[:, [0, 3]])
    op.token_scatter_(rows, torch.zeros(3, 2, 2), index, True)
    assert not rows[:, [0, 3]].any()
    assert rows[:, 1:3].all()


def test_gradient_of_a_sum_which_cannot_be_written_to_gives_a_new_tensor(op: Any) -> None:
    ones = torch.ones(1).expand(2, 4, 3)
    index = torch.tensor([[1], [2]], dtype=torch.int32)
    found = op.token_scatter_(ones, torch.zeros(2, 1, 3), index, True)
    assert found.sum(-1).tolist() == [[3, 0, 3, 3], [3, 3, 0, 3]]
    assert ones.all()


@pytest.mark.parametrize("seed", range(5))
def test_indices_are_sorted_in_place(op: Any, seed: int) -> None:
    draw, batch, length, _, kept = drawn(seed)
    ids = torch.tensor(np.array([[draw.permutation(length)[:kept] for _ in range(batch)] for _ in range(3)]))
    ids = ids.to(torch.int32)
    wanted = np.sort(ids.numpy(), -1)
    assert op.token_sort_(ids, length) is ids
    assert ids.tolist() == wanted.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_masks_keep_rows_and_columns(op: Any, seed: int) -> None:
    draw, batch, length, _, kept = drawn(seed)
    mask = draw.standard_normal((batch, 1, length, length))
    index = torch.stack([kept_tokens(draw, batch, length, kept) for _ in range(3)])
    found = op.mask_gather_bert(torch.tensor(mask), index).numpy()
    for layer in range(3):
        for row in range(batch):
            each = index[layer, row].numpy()
            np.testing.assert_array_equal(found[layer, row, 0], mask[row, 0][np.ix_(each, each)])
    assert found.shape == (3, batch, 1, kept, kept)
    np.testing.assert_array_equal(
        op.mask_gather_gpt(torch.tensor(mask), kept).numpy(), mask[:, :, :kept, :kept]
    )


def test_nothing_gives_nothing(op: Any) -> None:
    none = torch.empty(2, 0, dtype=torch.int32)
    assert op.token_gather(torch.ones(2, 3, 4), none, True).shape == (2, 0, 4)
    assert op.token_scatter_(torch.ones(2, 3, 4), torch.ones(2, 0, 4), none, True).all()
    assert op.mask_gather_bert(torch.ones(2, 1, 3, 3), none.view(1, 2, 0)).shape == (1, 2, 1, 0, 0)


@pytest.mark.parametrize(
    ("name", "arguments", "reported"),
    [
        ("token_gather", (torch.ones(2, 3), torch.zeros(2, 1, dtype=torch.int32), True), "activations of shape (2, 3)"),
        ("token_gather", (torch.ones(2, 3, 4), torch.zeros(3, 1, dtype=torch.int32), True), "(3, 1)"),
        ("token_gather", (torch.ones(2, 3, 4), torch.zeros(2, 1), True), "sorted_indices of torch.float32"),
        (
            "token_scatter_",
            (torch.ones(2, 3, 4), torch.ones(2, 2, 4), torch.zeros(2, 1, dtype=torch.int32), True),
            "layer_activations of shape (2, 2, 4)",
        ),
        (
            "token_scatter_",
            (torch.ones(2, 3, 4), torch.ones(2, 1, 4).half(), torch.zeros(2, 1, dtype=torch.int32), True),
            "layer_activations of torch.float16",
        ),
        ("token_sort_", (torch.zeros(2, 3, dtype=torch.int32), 3), "unsorted_token_ids of shape (2, 3)"),
        ("token_sort_", (torch.zeros(1, 2, 3), 3), "torch.float32"),
        ("mask_gather_bert", (torch.ones(2, 1, 3, 4), torch.zeros(1, 2, 1, dtype=torch.int32)), "dense_mask"),
        ("mask_gather_gpt", (torch.ones(2, 1, 3, 3), 4), "truncated_seq_len = 4"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_told(op: Any, name: str, arguments: Any, reported: str) -> None:
    with pytest.raises(InvalidOpArgument) as error:
        getattr(op, name)(*arguments)
    assert reported in str(error.value)
