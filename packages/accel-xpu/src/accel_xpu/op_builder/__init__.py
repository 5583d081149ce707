# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of Intel GPUs; what is missing has its reason in `accel_xpu.traits`."""

from accel_core.op_builder import OpTable
from accel_core.op_builder.names import FILE_IO, FUSED, HOST, INFERENCE, PLAIN

TABLE = OpTable.from_modules(
    __name__,
    host=(*HOST, *FILE_IO),
    fused=FUSED,
    inference=INFERENCE,
    plain=PLAIN,
    flash_attention=["FlashAttentionBuilder"],
)
