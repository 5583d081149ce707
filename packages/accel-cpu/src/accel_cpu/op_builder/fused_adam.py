# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam over many tensors in one call: DeepSpeed's default optimizer."""

from accel_core.upstream import packaged


class FusedAdamBuilder(packaged.PackagedBuilder):
    """Compiles DeepSpeed's own sources when it is first loaded."""

    NAME = "fused_adam"
    BUILD_VAR = "DS_BUILD_FUSED_ADAM"
    UPSTREAM = ("deepspeed.ops.op_builder.cpu.FusedAdamBuilder",)
