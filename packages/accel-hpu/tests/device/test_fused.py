# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam on Habana's op beside torch's in float64, in lazy and in eager mode, whose ops differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_hpu.accelerator import HPU_Accelerator
from accel_hpu.op_builder.fused import FusedAdamBuilder

LR, BETAS, DECAY = 1e-2, (0.9, 0.999), 0.1
SHAPES = [(7,), (3, 5), (1,), (0,)]


@pytest.fixture(scope="module", autouse=True)
def accelerator() -> HPU_Accelerator:
    return HPU_Accelerator()


def lists(dtype: torch.dtype, seed: int, gradient: float = 1.0) -> list[list[torch.Tensor]]:
    """Gradients, parameters, first and second moments on the CPU in float64, of values that `dtype` has."""
    generator = torch.Generator().manual_seed(seed)

    def tensors(scale: float) -> list[torch.Tensor]:
        drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) * scale for shape in SHAPES]
        return [tensor.to(dtype).double() for tensor in drawn]

    firsts = tensors(gradient)
    return [tensors(gradient), tensors(1.0), firsts, [first**2 + gradient**2 for first in firsts]]


def reference(given: list[list[torch.Tensor]], step: int, eps: float, adam_w: bool, corrects: bool) -> None:
    """One step in place, as the papers write it."""
    for grad, param, first, second in zip(*given, strict=True):
        grad = grad if adam_w else grad + DECAY * param
        first.mul_(BETAS[0]).add_((1 - BETAS[0]) * grad)
        second.mul_(BETAS[1]).add_((1 - BETAS[1]) * grad**2)
        correction = [1 - beta**step if corrects else 1.0 for beta in BETAS]
        param.mul_(1 - LR * DECAY if adam_w else 1.0)
        param.sub_(LR * (first / correction[0]) / ((second / correction[1]).sqrt() + eps))


def run(given: list[list[torch.Tensor]], dtype: torch.dtype, *hyper: Any) -> list[list[torch.Tensor]]:
    """The same step on the device."""
    moved = [[tensor.to(dtype).to("hpu") for tensor in tensors] for tensors in given]
    moved[1] = [torch.nn.Parameter(tensor) for tensor in moved[1]]
    step, eps, adam_w, corrects = hyper
    load = FusedAdamBuilder().load()
    load.multi_tensor_adam(
        2048,
        torch.zeros(1, dtype=torch.int32),
        moved,
        LR,
        *BETAS,
        eps,
        step,
        int(adam_w),
        int(corrects),
        DECAY,
    )
    return [[tensor.detach().cpu().double() for tensor in tensors] for tensors in moved]


def test_habana_s_op_is_used() -> None:
    assert FusedAdamBuilder().reason == "torch.ops.hpu.optimizer_adamw"


@pytest.mark.parametrize("step", [1, 2, 100, 40_000])
@pytest.mark.parametrize("adam_w", [False, True])
@pytest.mark.parametrize("corrects", [False, True])
def test_a_step_is_adam_s(step: int, adam_w: bool, corrects: bool) -> None:
    """Also without decoupled decay, which upstream's function for hpu leaves out."""
    given = lists(torch.float32, step)
    found = run(given, torch.float32, step, 1e-8, adam_w, corrects)
    reference(given, step, 1e-8, adam_w, corrects)
    torch.testing.assert_close(found[1:], given[1:], rtol=2e-6, atol=1e-9)


def test_epsilon_is_added_to_the_corrected_moment() -> None:
    """Gradients as small as epsilon: adding it to the uncorrected one, as upstream does, is off by a factor."""
    given = lists(torch.float32, 3, gradient=1e-8)
    found = run(given, torch.float32, 1, 1e-8, True, True)
    reference(given, 1, 1e-8, True, True)
    torch.testing.assert_close(found[1], given[1], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_rounded_once(dtype: torch.dtype) -> None:
    given = lists(dtype, 5)
    found = run(given, dtype, 10, 1e-8, True, True)
    reference(given, 10, 1e-8, True, True)
    torch.testing.assert_close(found[1:], given[1:], rtol=torch.finfo(dtype).eps, atol=1e-4)


def test_no_tensors_are_no_step() -> None:
    FusedAdamBuilder().load().multi_tensor_adam(
        2048, None, [[], [], [], []], LR, *BETAS, 1e-8, 1, 1, 1, DECAY
    )
