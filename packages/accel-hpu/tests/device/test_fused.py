# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam on Habana's op, in lazy and in eager mode, whose ops differ."""

from accel_hpu.accelerator import HPU_Accelerator
from accel_hpu.op_builder.fused import FusedAdamBuilder


def test_no_tensors_are_no_step() -> None:
    HPU_Accelerator()
    assert FusedAdamBuilder().reason == "torch.ops.hpu.optimizer_adamw"
    step = FusedAdamBuilder().load().multi_tensor_adam
    step(2048, None, [[], [], [], []], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
