# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch's operators, and over npu_apply_adam_w for the types that these refuse."""

from typing import Any

import pytest
import torch

from accel_npu import NPU_Accelerator
from accel_ops import kernel_builders
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


def test_steps_without_bias_correction_are_left_to_the_op_where_torch_s_are_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op, calls = torch.ops.npu.npu_apply_adam_w.out, []
    monkeypatch.setattr(
        torch.ops.npu.npu_apply_adam_w, "out", lambda *given, out: calls.append(1) or op(*given, out=out)
    )
    wrong = {0: "computes wrongly"}  # by whether the bias is corrected
    monkeypatch.setattr(kernel_builders, "_wrong_step", lambda *given: wrong.get(given[-1], ""))
    kernel_builders.self_check.cache_clear()
    step = NPU_Accelerator().create_op_builder("FusedAdamBuilder").load().multi_tensor_adam
    kernel_builders.self_check.cache_clear()
    for corrected, count in ((1, 0), (0, 2)):
        lists = [[torch.ones(3, device="npu"), torch.ones(2, device="npu")] for _ in range(4)]
        step(2048, torch.zeros(1), lists, 1e-2, 0.8, 0.95, 1e-6, 1, 1, corrected, 0.1)
        assert len(calls) == count
