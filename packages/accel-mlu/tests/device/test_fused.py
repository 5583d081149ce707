# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch_mlu's op, and what must not reach it."""

from typing import Any

import pytest
import torch

from accel_mlu import MLU_Accelerator
from accel_testkit import adam_steps

LOW = [torch.float16, torch.bfloat16]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The types of the parameters of each call of the op."""
    seen: list[Any] = []
    op = torch.ops.torch_mlu.fused_adam

    def counted(*arguments: Any) -> Any:
        seen.append(arguments[2][0].dtype)
        return op(*arguments)

    monkeypatch.setattr(torch.ops.torch_mlu, "fused_adam", counted)
    return seen


@pytest.fixture
def step() -> Any:
    builder = MLU_Accelerator().create_op_builder("FusedAdamBuilder")
    assert builder.reason == "torch.ops.torch_mlu.fused_adam"
    return builder.load().multi_tensor_adam


@pytest.mark.parametrize("dtype", [torch.float32, *LOW], ids=str)
def test_steps_over_the_op_are_adam_s(step: Any, calls: list[Any], dtype: torch.dtype) -> None:
    assert adam_steps.largest_error(step, "mlu", dtype) < 1
    assert set(calls) == {dtype}


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_moments_that_the_kernel_would_misread_are_kept_from_it(
    step: Any, calls: list[Any], dtype: torch.dtype
) -> None:
    assert adam_steps.largest_error(step, "mlu", dtype, moments=dtype) < 1
    assert calls == []
