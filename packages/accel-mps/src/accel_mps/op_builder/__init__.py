# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the Apple GPU; what is missing has its reason in `accel_mps.traits`."""

from accel_ops.table import op_table

TABLE = op_table({f"{__name__}.fused": ("FusedAdamBuilder",)})
