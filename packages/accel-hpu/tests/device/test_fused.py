# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam on Habana's op beside plain torch's in float64, in lazy and in eager mode, whose ops differ."""

from typing import Any

import pytest
import torch

from accel_hpu.accelerator import HPU_Accelerator
from accel_hpu.op_builder.fused import FusedAdamBuilder
from accel_testkit import adam_steps


@pytest.fixture
def step() -> Any:
    HPU_Accelerator()
    assert FusedAdamBuilder().reason == "torch.ops.hpu.optimizer_adamw"
    return FusedAdamBuilder().load().multi_tensor_adam


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_steps_are_adam_s(step: Any, dtype: torch.dtype) -> None:
    """Also without decoupled decay, which upstream's function for hpu leaves out."""
    assert adam_steps.largest_error(step, "hpu", dtype, dtype) < 1


def test_no_tensors_are_no_step(step: Any) -> None:
    step(2048, None, [[], [], [], []], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
