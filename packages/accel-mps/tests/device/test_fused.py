# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused Adam with torch's own operators."""

from accel_mps import MPS_Accelerator


def test_fused_adam_is_torch_s_operators() -> None:
    builder = MPS_Accelerator().create_op_builder("FusedAdamBuilder")
    builder.load()
    assert builder.reason.startswith(
        "torch._fused_adamw_ and torch._fused_adam_ for float32, float16, bfloat16"
    )
