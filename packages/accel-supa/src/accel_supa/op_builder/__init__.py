# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the Biren GPU; what is missing has its reason in `accel_supa.traits`."""

from accel_ops.table import op_table

TABLE = op_table({f"{__name__}.fused": ("FusedAdamBuilder",)})
