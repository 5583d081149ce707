# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch's operators, over npu_apply_adam_w, and in plain torch for the types that both refuse."""

from typing import Any

import pytest
import torch

from accel_npu import NPU_Accelerator
from accel_npu.op_builder.fused import step as npu_step
from accel_ops import routes
from accel_ops.optimizers.fused import as_multi_tensor_adam

HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Types of the parameters that npu_apply_adam_w has stepped."""
    op, seen = torch.ops.npu.npu_apply_adam_w.out, []

    def counted(*arguments: Any, out: Any) -> Any:
        seen.append(out[0].dtype)
        return op(*arguments, out=out)

    monkeypatch.setattr(torch.ops.npu.npu_apply_adam_w, "out", counted)
    return seen


def _take(step: Any, *kinds: torch.dtype) -> None:
    lists = [[torch.ones(5, device="npu", dtype=kind)] for kind in kinds]
    step(2048, torch.zeros(1), lists, 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_types_do_not_reach_the_op(dtype, calls):
    builder = NPU_Accelerator().create_op_builder("FusedAdamBuilder")
    for step in (builder.load().multi_tensor_adam, as_multi_tensor_adam(npu_step)):
        for moments in (dtype, torch.float32):
            _take(step, dtype, dtype, moments, moments)
    assert set(calls) <= {torch.float32}
    assert builder.reason.startswith(
        "torch._fused_adamw_ (adam_w_mode=0: plain torch) for float32, float16, "
    )
    calls.clear()
    _take(as_multi_tensor_adam(npu_step), *[torch.float32] * 4)
    assert calls == [torch.float32]


def test_strided_float32_uses_npu_apply_adam_w(calls):
    builder = NPU_Accelerator().create_op_builder("FusedAdamBuilder")
    step = builder.load().multi_tensor_adam
    assert "torch.ops.npu.npu_apply_adam_w if it works when first needed, else plain torch" in builder.reason
    lists = [[torch.rand(3, 4).npu().t()] for _ in range(4)]
    step(2048, torch.zeros(1), lists, 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    assert len(calls) > 1, "a self-check, and the step"
    assert builder.reason.endswith(
        "; torch.ops.npu.npu_apply_adam_w and plain torch for mixed types and strided tensors"
    )


def test_wrong_uncorrected_steps_use_the_op(calls, monkeypatch):
    wrong = {0: "computes wrongly"}  # by whether the bias is corrected
    monkeypatch.setattr(routes, "wrong_step", lambda *given: wrong.get(given[-1], ""))
    routes.self_check.cache_clear()
    step = NPU_Accelerator().create_op_builder("FusedAdamBuilder").load().multi_tensor_adam
    routes.self_check.cache_clear()
    for corrected in (1, 0):
        assert not calls
        lists = [[torch.ones(3, device="npu"), torch.ones(2, device="npu")] for _ in range(4)]
        step(2048, torch.zeros(1), lists, 1e-2, 0.8, 0.95, 1e-6, 1, 1, corrected, 0.1)
    assert calls
