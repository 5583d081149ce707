# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed 0.19's own page-locked allocator."""

from accel_core.upstream import packaged


class PinMemoryBuilder(packaged.PackagedBuilder):
    """Compiles DeepSpeed's own sources when it is first loaded."""

    NAME = "pin_memory"
    BUILD_VAR = "DS_BUILD_PIN_MEMORY"
    UPSTREAM = ("deepspeed.ops.op_builder.pin_memory.PinMemoryBuilder",)
