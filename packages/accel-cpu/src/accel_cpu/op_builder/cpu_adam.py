# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam and AdamW on the host: the optimizer of CPU offload."""

from accel_core.upstream import packaged


class CPUAdamBuilder(packaged.PackagedBuilder):
    """Compiles DeepSpeed's own sources when it is first loaded."""

    NAME = "cpu_adam"
    BUILD_VAR = "DS_BUILD_CPU_ADAM"
    UPSTREAM = ("deepspeed.ops.op_builder.cpu.CPUAdamBuilder",)
