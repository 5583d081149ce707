# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch_mlu's op, and what must not reach it."""

from typing import Any

import pytest
import torch

from accel_mlu import MLU_Accelerator
from accel_testkit import adam_steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_steps_over_the_op_are_adam_s_and_moments_that_it_would_misread_are_kept_from_it(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = MLU_Accelerator().create_op_builder("FusedAdamBuilder")
    assert builder.reason == "torch.ops.torch_mlu.fused_adam"
    step = builder.load().multi_tensor_adam
    op, called = torch.ops.torch_mlu.fused_adam, []

    def counted(*arguments: Any) -> Any:
        called.append((arguments[2][0].dtype, arguments[3][0].dtype))
        return op(*arguments)

    monkeypatch.setattr(torch.ops.torch_mlu, "fused_adam", counted)
    for moments in (torch.float32, dtype):
        assert adam_steps.largest_error(step, "mlu", dtype, moments=moments) < 1
    assert set(called) == {(dtype, torch.float32)}
