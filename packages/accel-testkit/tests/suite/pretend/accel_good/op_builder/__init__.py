# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the pretended device."""

from accel_core.op_builder import OpTable

TABLE = OpTable(
    package=__name__,
    builders={
        name: f"{__name__}.optimizers:{name}"
        for name in ("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "FusedAdamBuilder")
    },
)
