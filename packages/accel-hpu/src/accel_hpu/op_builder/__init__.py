# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of Gaudi; what is missing has its reason in `accel_hpu.traits`."""

from accel_core.op_builder.names import INFERENCE
from accel_ops.table import op_table

TABLE = op_table(
    {
        f"{__name__}.fused": ("FusedAdamBuilder",),
        f"{__name__}.inference": INFERENCE,
        f"{__name__}.fp_quantizer": ("FPQuantizerBuilder",),
    }
)
