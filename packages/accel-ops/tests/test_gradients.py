# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One pass over a gradient, and a step with scaling and copy-out, are what torch's separate passes give, bit by bit."""

import math
from typing import Any

import pytest
import torch

from accel_ops import kernels
from accel_ops.errors import InvalidTensors
from accel_ops.kernels import copy_gradient
from accel_ops.op_builder import CPUAdagradBuilder, CPUAdamBuilder, CPULionBuilder, optimizers

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = (0, 1, 5, 4096, 4097, 100_003)


def _pair(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return (
        torch.randn(size + 1, generator=generator).to(dtype)[1:],  # not aligned
        torch.randn(size, generator=generator).mul_(50).to(dtype),
    )


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wanted", DTYPES)
def test_the_copy_is_torchs_and_the_sum_that_of_the_gradient(dtype: torch.dtype, wanted: torch.dtype) -> None:
    for size in SIZES:
        grad, _ = _pair(size, dtype)
        destination = torch.full((size,), 7.0, dtype=wanted)
        total = copy_gradient(grad, destination)
        assert torch.equal(destination, grad.to(wanted))
        assert total == kernels.sum_of_squares([grad])
        assert total == pytest.approx(grad.double().square().sum().item(), rel=1e-12)


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("dtype", DTYPES)
def test_accumulation_rounds_as_torchs(dtype: torch.dtype) -> None:
    for size in SIZES:
        grad, accumulated = _pair(size, dtype)
        before, expected = grad.clone(), grad.clone().add_(accumulated)
        destination = torch.empty(size)
        assert copy_gradient(grad, destination, accumulated=accumulated, add=True) == kernels.sum_of_squares(
            [expected]
        )
        assert torch.equal(accumulated, expected)
        assert torch.equal(destination, expected.float())
        assert copy_gradient(grad, accumulated=accumulated) == 0
        assert torch.equal(accumulated, before)
        assert torch.equal(grad, before)


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_tells_of_one_bad_element(bad: float, dtype: torch.dtype) -> None:
    for place in (0, 4095, 9_999):
        grad = torch.full((10_000,), torch.finfo(dtype).max, dtype=dtype)
        assert math.isfinite(copy_gradient(grad, torch.empty(10_000)))
        grad[place] = bad
        assert not math.isfinite(copy_gradient(grad, torch.empty(10_000)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"destination": torch.empty(7)},
        {"destination": torch.empty(8, dtype=torch.double)},
        {"destination": torch.empty(8, device="meta")},
        {"destination": torch.empty(16)[::2]},
        {"accumulated": torch.empty(8, dtype=torch.bfloat16)},
        {"accumulated": torch.empty(8)._neg_view()},
    ],
)
def test_other_tensors_are_refused_before_anything_is_written(arguments: dict[str, Any]) -> None:
    kept = torch.zeros(8)
    given: dict[str, Any] = {"accumulated": kept, **arguments}
    with pytest.raises(InvalidTensors):
        copy_gradient(torch.ones(8), **given)
    assert not kept.any()


def test_shared_memory_is_refused() -> None:
    memory = torch.zeros(12)
    with pytest.raises(InvalidTensors, match="shares memory"):
        copy_gradient(memory[:8], memory[4:])


def _steps(op: Any, kind: str, param: torch.Tensor, grad: torch.Tensor, states: list[torch.Tensor]) -> None:
    for step in (1, 2, 3):
        if kind == "adam":
            op.adam_update(3, step, 0.01, 0.9, 0.999, 1e-8, 0.1, True, param, grad, *states)
        elif kind == "lion":
            op.lion_update(3, step, 0.01, 0.9, 0.99, 0.1, param, grad, states[0])
        else:
            op.adagrad_update(3, step, 0.01, 1e-8, 0.1, param, grad, states[0])


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("kind", ["adam", "lion", "adagrad"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pieces", [False, True])
def test_a_fused_step_is_scaling_step_and_copy(
    kind: str, dtype: torch.dtype, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "PIECE", 1000)
    op = {"adam": CPUAdamBuilder(), "lion": CPULionBuilder(), "adagrad": CPUAdagradBuilder()}[kind].load()
    getattr(op, f"create_{kind}")(3)
    factor = torch.tensor(1 / 3).item()
    grad, param = torch.randn(2503), torch.randn(2503)
    states = [torch.zeros(2503), torch.zeros(2503)]
    ours, our_states = param.clone(), [state.clone() for state in states]
    copy, kept, bounds = torch.zeros(2503, dtype=dtype), grad.clone(), []

    _steps(op, kind, param, grad.mul(factor), states)

    def copied(begin: int, end: int) -> None:
        bounds.append((begin, end))
        assert torch.equal(copy[begin:end], ours[begin:end].to(dtype))  # it is told once it is there

    step = op.fused(grad_factor=factor, copy=copy, copied=copied if pieces else None)
    _steps(step, kind, ours, grad, our_states)
    getattr(step, f"destroy_{kind}")(3)

    assert step.updates == 3
    assert torch.equal(ours, param)
    assert all(map(torch.equal, our_states, states))
    assert torch.equal(copy, param.to(dtype))
    assert torch.equal(grad, kept)
    assert bounds == [(0, 1000), (1000, 2000), (2000, 2503)] * 3 * pieces
