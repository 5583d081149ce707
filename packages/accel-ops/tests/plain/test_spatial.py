# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Sums with biases, beside float64 rounded once, for images and sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.plain import SpatialInferenceBuilder

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
CHANNELS = 6


@pytest.fixture(scope="module")
def op() -> Any:
    return SpatialInferenceBuilder().load()


def numbers(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["channels last", "contiguous", "sequence"])
def test_sums_are_those_of_float64(op: Any, layout: str, dtype: torch.dtype) -> None:
    shape = (2, 5, CHANNELS) if layout == "sequence" else (2, CHANNELS, 3, 4)
    x, other = (numbers(*shape, dtype=dtype, seed=seed) for seed in (1, 2))
    bias, other_bias = (numbers(CHANNELS, dtype=dtype, seed=seed) for seed in (3, 4))
    if layout == "channels last":
        x, other = (each.to(memory_format=torch.channels_last) for each in (x, other))
    place = (1, CHANNELS) if layout == "sequence" else (1, CHANNELS, 1, 1)
    exact = x.double() + bias.double().view(place)
    for found, wanted in (
        (op.nhwc_bias_add(x, bias), exact),
        (op.nhwc_bias_add_add(x, bias, other), exact + other.double()),
        (
            op.nhwc_bias_add_bias_add(x, bias, other, other_bias),
            exact + other.double() + other_bias.double().view(place),
        ),
    ):
        assert (found.dtype, found.stride()) == (dtype, x.stride())
        # Where float32 is rounded on its way, the last bit may be the other one.
        torch.testing.assert_close(found.double(), wanted, rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_inputs_are_left_as_they_are_and_overflow_is_seen(op: Any) -> None:
    x, bias = torch.full((1, 2, 1), 6e4, dtype=torch.float16), torch.full((1,), 6e4, dtype=torch.float16)
    assert op.nhwc_bias_add(x, bias).isinf().all()
    assert (x == 6e4).all()
    x[0, 0] = float("nan")
    assert op.nhwc_bias_add_add(x, -bias, x).isnan().flatten().tolist() == [True, False]


def test_nothing_gives_nothing(op: Any) -> None:
    assert op.nhwc_bias_add(torch.empty(0, 4, 3), torch.ones(3)).shape == (0, 4, 3)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ((torch.ones(2, 3), torch.ones(3)), "activation of shape (2, 3)"),
        ((torch.ones(2, 3, 4), torch.ones(3)), "bias of shape (3,)"),
        ((torch.ones(2, 3, 4), torch.ones(4).half()), "bias of torch.float16"),
        ((torch.ones(2, 3, 4).int(), torch.ones(4).int()), "torch.int32"),
        ((torch.ones(2, 3, 4), torch.ones(4), torch.ones(2, 1, 4)), "other of shape (2, 1, 4)"),
        ((torch.ones(2, 3, 4), torch.ones(4), torch.ones(2, 3, 4).half()), "other of torch.float16"),
    ],
)
def test_tensors_that_do_not_fit_are_told(op: Any, arguments: Any, reported: str) -> None:
    function = op.nhwc_bias_add if len(arguments) == 2 else op.nhwc_bias_add_add
    with pytest.raises(InvalidOpArgument) as error:
        function(*arguments)
    assert reported in str(error.value)
