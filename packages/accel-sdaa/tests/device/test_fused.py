# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch_sdaa's op, as far as its schema is known from public calls."""

import pytest
import torch

from accel_sdaa import SDAA_Accelerator
from accel_testkit import adam_steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_steps_over_the_op_are_adam_s(dtype: torch.dtype) -> None:
    builder = SDAA_Accelerator().create_op_builder("FusedAdamBuilder")
    assert builder.reason == "torch.ops.sdaa.fused_adam"
    assert adam_steps.largest_error(builder.load().multi_tensor_adam, "sdaa", dtype) < 1
