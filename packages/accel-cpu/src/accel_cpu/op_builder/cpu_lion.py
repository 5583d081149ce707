# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lion on the host."""

from accel_core.upstream import packaged


class CPULionBuilder(packaged.PackagedBuilder):
    """Compiles DeepSpeed's own sources when it is first loaded."""

    NAME = "cpu_lion"
    BUILD_VAR = "DS_BUILD_CPU_LION"
    # DeepSpeed 0.18 has it beside its GPU ops.
    UPSTREAM = (
        "deepspeed.ops.op_builder.cpu.CPULionBuilder",
        "deepspeed.ops.op_builder.cpu_lion.CPULionBuilder",
    )
