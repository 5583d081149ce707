# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the vendors' fused operators are, and what they do not take; `device/` has their arithmetic."""

from __future__ import annotations

from accel_sim import surface


def test_torch_npu_offers_them_under_its_own_name_with_the_real_schema(python):
    done = python(
        "npu",
        """
import torch, torch_npu
print(torch_npu.npu_rms_norm is torch.ops.npu.npu_rms_norm, hasattr(torch.ops.npu, "npu_grouped_matmul"))
print(torch.ops.npu.npu_apply_adam_w.default._schema, torch.ops.npu.npu_apply_adam_w.out._schema, sep="; ")
torch_npu.npu_grouped_matmul()
""",
    )
    first, second = done.stdout.splitlines()
    assert first == "True False"
    assert second == surface.load("npu").names["torch.ops.npu.npu_apply_adam_w"].signature
    assert "torch_npu.npu_grouped_matmul is not simulated" in done.stderr


def test_another_vendors_ops_are_not_there(python):
    done = python("mlu", "import torch, torch_mlu; print(hasattr(torch.ops.npu, 'npu_rms_norm'))")
    assert done.stdout.strip() == "False", done.stderr


def test_parameters_that_are_not_simulated_say_so(python):
    source = """
import torch, torch_npu
x = torch.ones(1, 1, 2, 4, device="npu")
torch_npu.npu_fusion_attention(x, x, x, 1, "BNSD", sparse_mode=4)
"""
    done = python("npu", source)
    assert "torch.ops.npu.npu_fusion_attention with sparse_mode 4" in done.stderr
