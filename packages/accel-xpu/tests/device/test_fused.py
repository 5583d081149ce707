# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam in plain torch, beside float64."""

from __future__ import annotations

import pytest
import torch

from accel_testkit import adam_steps
from accel_xpu import XPU_Accelerator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_steps_are_adam_s(dtype: torch.dtype) -> None:
    builder = XPU_Accelerator().create_op_builder("FusedAdamBuilder")
    assert adam_steps.largest_error(builder.load().multi_tensor_adam, "xpu", dtype) < 1
