# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A digest stands for its tensor: what differs in the tensor differs in the digest, by about as much."""

import math
from collections.abc import Callable

import pytest
import torch

from accel_testkit.compare.difference import distance
from accel_testkit.compare.digest import digest


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (32, 5), (4096,), (3, 4097), (300, 500), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_equal_tensors_have_equal_digests(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = (_normal(*shape) * 10).to(dtype)
    assert digest(tensor) == digest(tensor.clone())
    assert distance(digest(tensor), digest(tensor.clone())) == 0


@pytest.mark.parametrize("relative", [1e-5, 1e-3, 0.1])
def test_distance_is_about_the_relative_difference(relative: float) -> None:
    tensor = _normal(300, 500)
    others = [tensor + relative * _normal(300, 500, seed=seed) for seed in range(1, 20)]
    found = [distance(digest(tensor), digest(other)) for other in others]
    assert relative / 3 < sorted(found)[len(found) // 2] < 3 * relative
    assert max(found) < 8 * relative


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one element": lambda x: x.index_put((torch.tensor([17]), torch.tensor([3])), torch.tensor(1.5)),
    "two elements swapped": lambda x: x[:, [1, 0, *range(2, x.shape[1])]],
    "rows shifted": lambda x: x.roll(1, 0),
    "one sign": lambda x: torch.cat([-x[:1], x[1:]]),
    "a factor": lambda x: x * (1 + 1e-5),
    "truncated to bfloat16": lambda x: (x.view(torch.int32) & -65536).view(torch.float32),
    "an offset": lambda x: x + 1e-4,
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_larger_than_rounding(change: str) -> None:
    tensor = _normal(200, 300)
    rounded = (tensor.double() * (1 + 6e-8 * _normal(200, 300, seed=1))).float()
    noise = distance(digest(tensor), digest(rounded))
    assert noise < 1e-6
    assert distance(digest(tensor), digest(CHANGES[change](tensor))) > 4 * noise


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_differs_from_all_others(value: float) -> None:
    tensor = _normal(50, 60)
    spoiled = tensor.clone()
    spoiled[3, 4] = value
    assert distance(digest(tensor), digest(spoiled)) == math.inf
    assert distance(digest(spoiled), digest(spoiled.clone())) == 0
    assert str(digest(spoiled)).endswith("1 NaN" if math.isnan(value) else "1 Inf")


def test_the_same_values_at_other_places_differ() -> None:
    causal = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    assert distance(digest(causal), digest(causal.t())) == math.inf
    assert distance(digest(causal), digest(-causal)) == math.inf
    assert distance(digest(causal), digest(causal.clone())) == 0


def test_values_whose_squares_overflow_are_compared() -> None:
    tensor = _normal(100) * 1e30
    assert 0.005 < distance(digest(tensor), digest(tensor * 1.01)) < 1


def test_another_shape_differs() -> None:
    tensor = _normal(6, 4)
    assert distance(digest(tensor), digest(tensor.reshape(4, 6))) == math.inf


def test_strides_do_not_matter() -> None:
    tensor = _normal(20, 30)
    assert digest(tensor.t().contiguous().t()) == digest(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.complex(torch.arange(3.0), torch.arange(3.0)),
        torch.eye(3).to_sparse(),
        torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.quint8),
        torch.arange(4.0).to(torch.float8_e4m3fn),
    ],
    ids=["complex", "sparse", "quantized", "float8"],
)
def test_other_kinds_of_tensors_have_digests(tensor: torch.Tensor) -> None:
    assert digest(tensor).norm > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_of_the_program_does_not_round_a_digest(dtype: torch.dtype) -> None:
    tensor = _normal(300, 50)
    plain = digest(tensor)
    with torch.autocast("cpu", dtype=dtype):
        assert digest(tensor) == plain
