# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam on Habana's op beside plain torch's in float64, in lazy and in eager mode, whose ops differ."""

from typing import Any

import pytest
import torch

from accel_hpu.accelerator import HPU_Accelerator
from accel_hpu.op_builder.fused import FusedAdamBuilder
from accel_ops import fused_optimizers
from accel_testkit import adam_steps

#: The first is float32's own precision of steps 1 to 1000, with epsilons from 1e-8.
EPS_APART = {torch.float32: 17, torch.bfloat16: 2, torch.float16: 2}


@pytest.fixture
def step() -> Any:
    HPU_Accelerator()
    assert FusedAdamBuilder().reason == "torch.ops.hpu.optimizer_adamw"
    return FusedAdamBuilder().load().multi_tensor_adam


@pytest.mark.parametrize("dtype", EPS_APART, ids=str)
def test_steps_are_adam_s(step: Any, dtype: torch.dtype) -> None:
    """Also without decoupled decay, which upstream's function for hpu leaves out."""
    assert adam_steps.largest_error(step, "hpu", dtype, dtype) < 1
    assert adam_steps.apart(step, "hpu", dtype, cases=20, float64=True) < EPS_APART[dtype]


@pytest.mark.parametrize(("gradient", "number"), [(1e-8, 1), (1.0, 40_000)], ids=["tiny", "late"])
def test_epsilon_is_added_to_the_corrected_moment(step: Any, gradient: float, number: int) -> None:
    """Gradients as small as epsilon: adding it to the uncorrected one, as upstream does, is off by a factor."""
    generator = torch.Generator().manual_seed(3)
    start = [[torch.randn(size, generator=generator) for size in (7, 15, 1, 0)] for _ in range(3)]
    grads, params, firsts = (
        [t * unit for t in tensors] for tensors, unit in zip(start, (gradient, 1, gradient), strict=False)
    )
    lists = [grads, params, firsts, [first**2 + gradient**2 for first in firsts]]
    found = [[tensor.to("hpu") for tensor in tensors] for tensors in lists]
    found[1] = [torch.nn.Parameter(tensor) for tensor in found[1]]
    wanted = [[tensor.double() for tensor in tensors] for tensors in lists]
    constants = (1e-2, 0.9, 0.999, 1e-8, number, 1, 1, 0.1)
    step(2048, torch.zeros(1, dtype=torch.int32), found, *constants)
    fused_optimizers.multi_tensor_adam(2048, torch.zeros(1), wanted, *constants)
    for ours, theirs in zip(found[1], wanted[1], strict=True):
        torch.testing.assert_close(ours.detach().cpu().double(), theirs, rtol=2e-6, atol=1e-7)


def test_no_tensors_are_no_step(step: Any) -> None:
    step(2048, None, [[], [], [], []], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
