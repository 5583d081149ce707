# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam over torch_mlu's op, and what must not reach it."""

import pytest
import torch

from accel_mlu import MLU_Accelerator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_op_gets_float32_moments_only(dtype, monkeypatch):
    builder = MLU_Accelerator().create_op_builder("FusedAdamBuilder")
    assert builder.reason == "torch.ops.torch_mlu.fused_adam"
    step = builder.load().multi_tensor_adam
    op, called = torch.ops.torch_mlu.fused_adam, []

    def counted(*arguments):
        called.append((arguments[2][0].dtype, arguments[3][0].dtype))
        return op(*arguments)

    monkeypatch.setattr(torch.ops.torch_mlu, "fused_adam", counted)
    for moments in (torch.float32, dtype):
        lists = [[torch.ones(5, device="mlu", dtype=kind)] for kind in (dtype, dtype, moments, moments)]
        step(2048, torch.zeros(1, device="mlu"), lists, 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    assert set(called) == {(dtype, torch.float32)}
