# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory that a step would read after it has written it is refused, and nothing is written then."""

from typing import Any

import pytest
import torch

from accel_ops import kernels
from accel_ops.errors import InvalidTensors

ADAM: dict[str, Any] = {"step": 1, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
NAMES = ("params", "grads", "exp_avgs", "exp_avg_sqs")


def six(**others: torch.Tensor) -> list[list[torch.Tensor]]:
    """Four lists of one tensor of six ones each, but for those given."""
    return [[others.get(name, torch.ones(6))] for name in NAMES]


def refused(*lists: list[torch.Tensor], message: str = "shares memory") -> None:
    """The step is refused and all tensors are as before."""
    before = [tensor.clone() for tensors in lists for tensor in tensors]
    with pytest.raises(InvalidTensors, match=message):
        kernels.adam(*lists, **ADAM)
    after = [tensor for tensors in lists for tensor in tensors]
    assert all(map(torch.equal, before, after))


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize(
    "cut",
    [
        lambda x: {"params": x[:6], "exp_avgs": x[:6]},
        lambda x: {"params": x[:6], "exp_avgs": x[5:11]},
        lambda x: {"params": x[:6], "grads": x[:6]},
        lambda x: {"params": x[1:7], "grads": x[:6]},
        lambda x: {"exp_avg_sqs": x[1:7], "grads": x[:6]},
        lambda x: {"params": x[::2], "exp_avgs": x[::2]},
        lambda x: {"params": x[::2], "exp_avg_sqs": x[:6]},
        lambda x: {"params": x[::2], "grads": x[:6]},
        lambda x: {"params": x[:1].expand(6)},
        lambda x: {"exp_avgs": torch.as_strided(x, (3, 2), (1, 1))},
    ],
    ids=[
        "two written ones", "two that overlap", "gradient and parameter", "gradient before parameter",
        "gradient and state", "with gaps, the same", "with gaps and without", "gradient in the gaps",
        "expanded", "folded",
    ],
)  # fmt: skip
def test_a_written_tensor_that_shares_memory_is_refused(cut: Any) -> None:
    refused(*six(**cut(torch.ones(12))))


@pytest.mark.usefixtures("with_and_without_library")
def test_sharing_is_seen_between_tensors_of_different_types() -> None:
    x = torch.ones(12)
    bf16 = x[:3].view(torch.bfloat16)
    first = [x[:6], torch.ones(6), torch.ones(6), torch.ones(6)]
    second = [bf16, torch.ones_like(bf16), torch.ones(6), torch.ones(6)]
    refused(*(list(pair) for pair in zip(first, second, strict=True)))


@pytest.mark.usefixtures("with_and_without_library")
def test_nothing_is_written_where_a_later_tensor_of_another_type_does_not_fit() -> None:
    good = [torch.ones(6) for _ in range(4)]
    bad = [
        torch.ones(6, dtype=torch.bfloat16),
        torch.ones(5, dtype=torch.bfloat16),
        torch.ones(6),
        torch.ones(6),
    ]
    refused(*(list(pair) for pair in zip(good, bad, strict=True)), message="5 elements for a parameter of 6")


@pytest.mark.usefixtures("with_and_without_library")
def test_gradients_may_share_memory_with_each_other() -> None:
    grad = torch.ones(12)
    params = [torch.ones(6), torch.ones(6), torch.ones(6)]
    states = [[torch.ones(6) for _ in range(3)] for _ in range(2)]
    kernels.adam(params, [grad[:6], grad[3:9], grad[:1].expand(6)], *states, **ADAM)
    assert torch.equal(params[0], params[1])
    assert torch.equal(params[0], params[2])


@pytest.mark.usefixtures("with_and_without_library")
def test_tensors_side_by_side_in_one_buffer_are_taken() -> None:
    row = torch.ones(24)
    alone = six()
    kernels.adam(*([row[start : start + 6]] for start in (0, 6, 12, 18)), **ADAM)
    kernels.adam(*alone, **ADAM)
    assert torch.equal(row[:6], alone[0][0])
    assert torch.equal(row[12:18], alone[2][0])
