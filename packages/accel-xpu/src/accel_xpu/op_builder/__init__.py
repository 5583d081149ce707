# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of Intel GPUs; what is missing has its reason in `accel_xpu.traits`."""

from accel_ops.table import op_table

TABLE = op_table(
    {
        f"{__name__}.fused": ("FusedAdamBuilder", "FusedLionBuilder"),
        f"{__name__}.quantizer": ("QuantizerBuilder",),
        f"{__name__}.flash_attention": ("FlashAttentionBuilder",),
    }
)
