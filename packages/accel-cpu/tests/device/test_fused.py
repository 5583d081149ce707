# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over the host's kernels, beside float64."""

import pytest
import torch

from accel_cpu import CPU_Accelerator
from accel_testkit import adam_steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_steps_are_adam_s(dtype: torch.dtype) -> None:
    builder = CPU_Accelerator().create_op_builder("FusedAdamBuilder")
    assert adam_steps.largest_error(builder.load().multi_tensor_adam, "cpu", dtype) < 1
