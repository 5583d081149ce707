# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops that run on the host whatever the device, from the sources that stock DeepSpeed ships."""

from __future__ import annotations

from accel_core.upstream import packaged


class CPUAdamBuilder(packaged.PackagedBuilder):
    """Adam and AdamW on the host: the optimizer of CPU offload."""

    NAME = "cpu_adam"
    BUILD_VAR = "DS_BUILD_CPU_ADAM"
    UPSTREAM = ("deepspeed.ops.op_builder.cpu.CPUAdamBuilder",)


class CPUAdagradBuilder(packaged.PackagedBuilder):
    """Adagrad on the host."""

    NAME = "cpu_adagrad"
    BUILD_VAR = "DS_BUILD_CPU_ADAGRAD"
    # DeepSpeed 0.18 has it beside its GPU ops.
    UPSTREAM = (
        "deepspeed.ops.op_builder.cpu.CPUAdagradBuilder",
        "deepspeed.ops.op_builder.cpu_adagrad.CPUAdagradBuilder",
    )


class CPULionBuilder(packaged.PackagedBuilder):
    """Lion on the host."""

    NAME = "cpu_lion"
    BUILD_VAR = "DS_BUILD_CPU_LION"
    # DeepSpeed 0.18 has it beside its GPU ops.
    UPSTREAM = (
        "deepspeed.ops.op_builder.cpu.CPULionBuilder",
        "deepspeed.ops.op_builder.cpu_lion.CPULionBuilder",
    )


class PinMemoryBuilder(packaged.PackagedBuilder):
    """DeepSpeed 0.19's own page-locked allocator."""

    NAME = "pin_memory"
    BUILD_VAR = "DS_BUILD_PIN_MEMORY"
    UPSTREAM = ("deepspeed.ops.op_builder.pin_memory.PinMemoryBuilder",)
