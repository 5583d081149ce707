# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Signs in bits, beside numpy's packbits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.plain import PackbitsBuilder


@pytest.fixture(scope="module")
def op() -> Any:
    return PackbitsBuilder().load()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1001])
def test_signs_are_packed_and_come_back(op: Any, size: int, dtype: torch.dtype) -> None:
    numbers = np.random.default_rng(size).standard_normal(size)
    packed = op.packbits(torch.from_numpy(numbers).to(dtype), size, 0)
    assert packed.dtype == torch.uint8
    np.testing.assert_array_equal(packed.numpy(), np.packbits(numbers >= 0))
    found = op.unpackbits(packed, packed.numel(), 0)
    assert (found.dtype, found.numel()) == (torch.float32, 8 * packed.numel())
    np.testing.assert_array_equal(found[:size].numpy(), np.where(numbers >= 0, 1.0, -1.0))


def test_sign_is_the_sign_bit(op: Any) -> None:
    numbers = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, -1e-45, 1e-45, -1])
    assert op.packbits(numbers, 8, 0).tolist() == [0b10101010]


def test_part_and_strides_are_followed(op: Any) -> None:
    numbers = torch.tensor([[1.0, -1, 1, 1], [-1, -1, 1, -1]])
    assert op.packbits(numbers.t(), 8, 1).tolist() == [0b10001110]
    assert op.packbits(numbers, 5, 1).tolist() == [0b10110000]
    assert op.unpackbits(torch.tensor([255, 0, 1], dtype=torch.uint8), 2, 1).tolist() == [1] * 8 + [-1] * 8


def test_arguments_that_do_not_fit_are_told(op: Any) -> None:
    data = torch.zeros(2, dtype=torch.uint8)
    for call, reported in (
        (lambda: op.packbits(data, 2, 0), "torch.uint8"),
        (lambda: op.packbits(torch.ones(2), 3, 0), "input_size = 3"),
        (lambda: op.unpackbits(torch.ones(2), 2, 0), "torch.float32"),
        (lambda: op.unpackbits(data, 3, 0), "at most 2 bytes"),
    ):
        with pytest.raises(InvalidOpArgument) as error:
            call()
        assert reported in str(error.value)
