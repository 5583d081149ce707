# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the CPU; what is missing has its reason in `accel_cpu.traits`."""

from accel_ops.table import op_table

TABLE = op_table(
    {
        "accel_ops.optimizers.host": ("FusedAdamBuilder", "FusedLionBuilder"),
        "accel_cpu.comm_ops": ("CCLCommBuilder", "ShareMemCommBuilder"),
    }
)
