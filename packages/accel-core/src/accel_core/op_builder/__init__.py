# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op builders: the base, the table, and the answer for what is missing."""

from accel_core.op_builder.base import OpBuilder
from accel_core.op_builder.not_implemented import NotImplementedBuilder
from accel_core.op_builder.table import OpTable

__all__ = ["NotImplementedBuilder", "OpBuilder", "OpTable"]
