# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The op table."""

from accel_core.op_builder import OpTable

NAMES = ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder", "OddLastBuilder", "OddSlowBuilder")
TABLE = OpTable(__name__, {name: f"odd_vendor.op_builder.ops:{name}" for name in NAMES})
