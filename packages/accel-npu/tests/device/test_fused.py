# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch's operators, and over npu_apply_adam_w: torch.optim's Adam and AdamW in float64."""

from typing import Any

import pytest
import torch

from accel_npu import NPU_Accelerator
from accel_ops import kernel_builders
from accel_testkit import adam_steps

HALVES = [torch.float16, torch.bfloat16]
LR, BETAS, EPS = 1e-2, (0.8, 0.95), 1e-6


def test_fused_adam_is_torch_s_operators() -> None:
    builder = NPU_Accelerator().create_op_builder("FusedAdamBuilder")
    builder.load()
    assert builder.reason.startswith(
        "torch._fused_adamw_ and torch._fused_adam_ for float32, float16, bfloat16"
    )


def refused(monkeypatch: pytest.MonkeyPatch, *corrections: int) -> Any:
    """The step where torch's operators are wrong with or without bias correction."""
    monkeypatch.setattr(
        kernel_builders, "_wrong_step", lambda *given: "computes wrongly" if given[-1] in corrections else ""
    )
    kernel_builders.self_check.cache_clear()
    builder = NPU_Accelerator().create_op_builder("FusedAdamBuilder")
    loaded = builder.load()
    assert "torch.ops.npu.npu_apply_adam_w" in builder.reason
    kernel_builders.self_check.cache_clear()
    return loaded.multi_tensor_adam


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Any:
    return refused(monkeypatch, 1, 0)


def test_steps_without_bias_correction_are_left_to_the_op_where_torch_s_are_wrong(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = refused(monkeypatch, 0)
    for corrected, count in ((1, 0), (0, 2)):
        lists = [[torch.ones(3, device="npu"), torch.ones(2, device="npu")] for _ in range(4)]
        step(2048, torch.zeros(1), lists, LR, *BETAS, EPS, 1, 1, corrected, 0.1)
        assert len(calls) == count


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The positional arguments of each call of the op."""
    seen: list[Any] = []
    op = torch.ops.npu.npu_apply_adam_w.out

    def counted(*arguments: Any, out: Any) -> Any:
        seen.append(arguments)
        return op(*arguments, out=out)

    monkeypatch.setattr(torch.ops.npu.npu_apply_adam_w, "out", counted)
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("halved", [False, True], ids=["float32 moments", "moments of that type"])
def test_steps_over_the_op_are_adam_s(step: Any, calls: list[Any], dtype: torch.dtype, halved: bool) -> None:
    assert adam_steps.largest_error(step, "npu", dtype, dtype if halved else torch.float32) < 1
    assert {call[7].dtype for call in calls} == {dtype}


def test_gradients_stay_as_they_were(step: Any) -> None:
    """Without decoupled decay the decay is added to the gradient, on a copy."""
    lists = [[torch.full((3,), value, device="npu")] for value in (0.5, 1.0, 0.0, 0.0)]
    step(2048, torch.zeros(1), lists, LR, *BETAS, EPS, 1, 0, 1, 0.1)
    assert lists[0][0].tolist() == [0.5, 0.5, 0.5]
    assert lists[1][0].tolist() != [1.0, 1.0, 1.0]


def test_no_tensors_are_no_step(step: Any, calls: list[Any]) -> None:
    step(2048, torch.zeros(1), [[], [], [], []], LR, *BETAS, EPS, 1, 1, 1, 0.1)
    assert calls == []


@pytest.mark.parametrize("name", ["FusedLambBuilder", "FusedLionBuilder"])
def test_optimizers_without_an_op_are_plain_torch(name: str) -> None:
    assert "torch.ops" not in NPU_Accelerator().create_op_builder(name).reason
