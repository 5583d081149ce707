# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the pretended device."""

from accel_core.op_builder import OpTable
from accel_core.op_builder.names import INFERENCE, PLAIN

TABLE = OpTable.from_modules(
    __name__,
    optimizers=("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "FusedAdamBuilder"),
    others=("FusedLambBuilder", "FusedLionBuilder", *INFERENCE, *PLAIN, "PinMemoryBuilder", "UtilsBuilder"),
)
