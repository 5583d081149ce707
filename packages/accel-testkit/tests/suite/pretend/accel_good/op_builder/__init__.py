# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the pretended device."""

from accel_core.op_builder import OpTable
from accel_core.op_builder.names import INFERENCE, PLAIN

_MODULES = {
    "optimizers": ("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "FusedAdamBuilder"),
    "others": (
        "FusedLambBuilder",
        "FusedLionBuilder",
        *INFERENCE,
        *PLAIN,
        "PinMemoryBuilder",
        "UtilsBuilder",
    ),
}
TABLE = OpTable(
    __name__, {name: f"{__name__}.{module}:{name}" for module, names in _MODULES.items() for name in names}
)
