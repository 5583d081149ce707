# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops that run on the host, whatever the device."""

from accel_core.upstream import packaged
from accel_core.upstream.host_ops import CPUAdagradBuilder, CPUAdamBuilder, CPULionBuilder, PinMemoryBuilder

__all__ = ["CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "PinMemoryBuilder", "UtilsBuilder"]


class UtilsBuilder(packaged.PackagedBuilder):
    """Casts of tensors that DeepSpeed's file writer needs."""

    NAME = "utils"
    BUILD_VAR = "DS_BUILD_UTILS"
    UPSTREAM = ("deepspeed.ops.op_builder.utils.UtilsBuilder",)
