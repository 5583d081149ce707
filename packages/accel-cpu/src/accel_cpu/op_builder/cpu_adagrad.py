# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adagrad on the host."""

from accel_core.upstream import packaged


class CPUAdagradBuilder(packaged.PackagedBuilder):
    """Compiles DeepSpeed's own sources when it is first loaded."""

    NAME = "cpu_adagrad"
    BUILD_VAR = "DS_BUILD_CPU_ADAGRAD"
    # DeepSpeed 0.18 has it beside its GPU ops.
    UPSTREAM = (
        "deepspeed.ops.op_builder.cpu.CPUAdagradBuilder",
        "deepspeed.ops.op_builder.cpu_adagrad.CPUAdagradBuilder",
    )
