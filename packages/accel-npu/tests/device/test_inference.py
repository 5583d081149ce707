# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which of DeepSpeed's inference functions are torch_npu's ops; the suite's op_runtime shows that they are used."""

import pytest

from accel_npu import NPU_Accelerator


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("InferenceBuilder", ["npu_add_rms_norm", "npu_fusion_attention", "npu_rms_norm", "npu_rotary_mul"]),
        ("InferenceCoreBuilder", ["npu_add_rms_norm", "npu_rms_norm", "npu_swiglu"]),
    ],
)
def test_the_reason_names_the_ops(name: str, ops: list[str]) -> None:
    named = ", ".join(f"torch.ops.npu.{op}" for op in ops)
    assert NPU_Accelerator().create_op_builder(name).reason == f"{named}; the rest in plain torch"
