# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam with torch's own operators, beside plain torch and float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_testkit import adam_steps
from accel_xpu import XPU_Accelerator

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture
def step() -> Any:
    builder = XPU_Accelerator().create_op_builder("FusedAdamBuilder")
    loaded = builder.load(verbose=False)
    assert builder.reason.startswith(
        "torch._fused_adamw_ and torch._fused_adam_ for float32, float16, bfloat16"
    )
    return loaded.multi_tensor_adam


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("halved", [False, True], ids=["float32 moments", "moments of that type"])
def test_steps_are_adam_s(step: Any, dtype: torch.dtype, halved: bool) -> None:
    moments = dtype if halved else torch.float32
    assert adam_steps.largest_error(step, "xpu", dtype, moments) < 1


@pytest.mark.parametrize("float64", [False, True], ids=["foreach", "float64"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_steps_are_within_two_eps(step: Any, dtype: torch.dtype, float64: bool) -> None:
    assert adam_steps.apart(step, "xpu", dtype, cases=20, float64=float64) < 2


@pytest.mark.slow
@pytest.mark.parametrize("float64", [False, True], ids=["foreach", "float64"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_random_steps_are_within_two_eps(step: Any, dtype: torch.dtype, float64: bool) -> None:
    assert adam_steps.apart(step, "xpu", dtype, cases=2000, float64=float64, seed=1) < 2


def test_the_operator_of_the_mode_is_called_once_for_all_tensors(
    step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    for name in ("_fused_adamw_", "_fused_adam_"):
        op = getattr(torch, name)

        def counted(params: Any, *arguments: Any, op: Any = op, name: str = name, **named: Any) -> Any:
            called.append((name, len(params)))
            return op(params, *arguments, **named)

        monkeypatch.setattr(torch, name, counted)
    for mode in (1, 0):
        lists = [[torch.ones(3, device="xpu"), torch.ones(2, 2, device="xpu")] for _ in range(4)]
        step(2048, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1e-8, 1, mode, 1, 0.1)
    assert called == [("_fused_adamw_", 2), ("_fused_adam_", 2)]
