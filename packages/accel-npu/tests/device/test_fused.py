# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch's operators, and over npu_apply_adam_w for the types that these refuse."""

from typing import Any

import pytest
import torch

from accel_npu import NPU_Accelerator
from accel_testkit import adam_steps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_types_that_torch_s_operators_refuse_are_stepped_by_the_op(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = NPU_Accelerator().create_op_builder("FusedAdamBuilder")
    step = builder.load().multi_tensor_adam
    assert builder.reason == (
        "torch._fused_adamw_ and torch._fused_adam_ for float32, float16, bfloat16; "
        "torch.ops.npu.npu_apply_adam_w for mixed types and strided tensors"
    )
    op, called = torch.ops.npu.npu_apply_adam_w.out, []

    def counted(*arguments: Any, out: Any) -> Any:
        called.append(out[0].dtype)
        return op(*arguments, out=out)

    monkeypatch.setattr(torch.ops.npu.npu_apply_adam_w, "out", counted)
    assert adam_steps.largest_error(step, "npu", dtype, moments=torch.float32) < 1
    assert set(called) == {dtype}
