# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the pretended device."""

from accel_core.op_builder import OpTable
from accel_core.op_builder.names import FUSED, HOST, INFERENCE, PLAIN

TABLE = OpTable(
    __name__, {name: f"{__name__}.builders:{name}" for name in (*FUSED, *HOST, *INFERENCE, *PLAIN)}
)
